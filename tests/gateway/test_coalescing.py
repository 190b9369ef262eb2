"""Coalescing: nothing lost or reordered, the first token at once, nothing held too long."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.token_ids import pack_ids
from gateway.core.coalescer import SECONDS, Coalescer


@given(
    tokens=st.integers(1, 6),
    arrivals=st.lists(st.tuples(st.text(max_size=3), st.floats(0, 2 * SECONDS)), max_size=30),
)
def test_output_is_kept_in_order_and_sent_in_time(tokens: int, arrivals: list[tuple[str, float]]) -> None:
    coalescer, now, chunks, held_since = Coalescer(tokens), 0.0, [], None
    for number, (text, wait) in enumerate(arrivals):
        now += wait
        if coalescer.due is not None and coalescer.due <= now:
            assert coalescer.ready(coalescer.due)
            chunks.append(coalescer.take())
            held_since = None
        held_since = now if held_since is None else held_since
        coalescer.add(pack_ids([number]), text, now)
        assert coalescer.due is not None
        assert coalescer.due <= held_since + SECONDS
        if coalescer.ready(now):
            chunks.append(coalescer.take())
            held_since = None
        assert number > 0 or chunks, "the first token goes at once"
    if coalescer.due is not None:
        chunks.append(coalescer.take())
    assert "".join(chunk.text for chunk in chunks) == "".join(text for text, _ in arrivals)
    assert b"".join(chunk.token_ids for chunk in chunks) == pack_ids(range(len(arrivals)))
    assert all(0 < len(chunk.token_ids) // 4 <= tokens for chunk in chunks)


def test_steady_tokens_go_out_in_fours() -> None:
    coalescer, sizes = Coalescer(4), []
    for number in range(13):
        coalescer.add(pack_ids([number]), "x", now=0.0)
        if coalescer.ready(0.0):
            sizes.append(len(coalescer.take().text))
    assert sizes == [1, 4, 4, 4]


def test_log_probabilities_go_with_their_tokens() -> None:
    chunks = Coalescer(2)
    entries = [object() for _ in range(3)]
    for number, entry in enumerate(entries):
        chunks.add(number.to_bytes(4, "little"), "x", 0.0, [entry])
        if number == 0:
            assert list(chunks.take().logprobs) == entries[:1]
    assert list(chunks.take().logprobs) == entries[1:]


def test_log_probabilities_of_several_tokens_that_came_together_stay_together() -> None:
    chunks = Coalescer(4)
    entries = [object() for _ in range(3)]
    chunks.add(pack_ids([0, 1]), "xy", 0.0, entries[:2])
    chunks.add(pack_ids([2]), "z", 0.0, entries[2:])
    assert [list(chunks.take().logprobs) for _ in range(2)] == [entries[:2], entries[2:]]
