"""Long misses against a list of the prompts at an engine."""

from hypothesis import given
from hypothesis import strategies as st

from serving.core.long_misses import LongMisses

BUDGET, PART, MOST = 40, 10, 3


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abcde"), st.integers(1, 30), st.booleans()), max_size=40))
def test_an_engine_has_one_long_miss_of_a_client_and_three_of_all(events: list[tuple[int, str, int, bool]]) -> None:
    misses = LongMisses[tuple[int, str]](BUDGET)
    here: dict[tuple[int, str], int] = {}
    for number, client, missing, leaves in events:
        prompt = number, client
        long = [each for each, size in here.items() if size > PART]
        is_closed = len(long) == MOST or client in [other for _, other in long]
        assert misses.is_closed(client, misses.most) == is_closed
        assert misses.is_long(missing) == (missing > PART)
        if leaves:
            misses.leave(prompt, client)
            here.pop(prompt, None)
        elif prompt not in here and not (is_closed and missing > PART):
            misses.enter(prompt, client, missing, min(missing, PART))
            here[prompt] = missing
        assert misses.uncomputed == sum(min(size, PART) for size in here.values())
        assert set(misses.long) == {each for each, size in here.items() if size > PART}
        assert len(misses) == len(misses.long)
        misses.check_invariants(here)


def test_a_step_of_few_tokens_has_a_part_and_a_prompt_counts_as_what_is_told_last() -> None:
    misses = LongMisses[int](3)
    assert misses.part == 1
    misses.enter(1, "a", 2, 2)
    misses.count(1, 1)
    assert misses.uncomputed == 1
    assert misses.has("a")
    assert not misses.has("b")
