"""Coalescing: what is held leaves in order and in one message, unless the caller wants each token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.token_ids import pack_ids
from gateway.core.call import Coalescer
from gateway.core.call_events import OutputChunk

ARRIVALS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "bc"]), st.booleans()), max_size=12)


def chunk(first: int, tokens: int, text: str) -> OutputChunk:
    numbers = range(first, first + tokens)
    return OutputChunk(pack_ids(numbers), text, list(numbers))


@given(tokens_per_message=st.sampled_from([1, 4]), arrivals=ARRIVALS)
def test_output_is_kept_in_order_with_its_log_probabilities(
    tokens_per_message: int, arrivals: list[tuple[int, str, bool]]
) -> None:
    coalescer, taken, count = Coalescer(tokens_per_message), list[OutputChunk](), 0
    for tokens, text, is_read in arrivals:
        coalescer.add(chunk(count, tokens, text))
        count += tokens
        assert coalescer.tokens == count - sum(each.tokens for each in taken)
        if is_read:
            taken.append(coalescer.take())
            assert tokens_per_message == 1 or not coalescer.held
    while coalescer.held:
        taken.append(coalescer.take())
    assert b"".join(each.token_ids for each in taken) == pack_ids(range(count))
    assert "".join(each.text for each in taken) == "".join(text for _, text, _ in arrivals)
    assert all(pack_ids(each.logprobs) == each.token_ids for each in taken)  # type: ignore[arg-type]


@pytest.mark.parametrize(("tokens_per_message", "sizes"), [(1, [2, 1, 1]), (4, [4])])
def test_messages_from_the_worker_are_joined_unless_the_caller_wants_each(
    tokens_per_message: int, sizes: list[int]
) -> None:
    coalescer = Coalescer(tokens_per_message)
    for each in (chunk(0, 2, "ab"), chunk(2, 1, "c"), chunk(3, 1, "d")):
        coalescer.add(each)
    assert [coalescer.take().tokens for _ in sizes] == sizes
    assert not coalescer.held
