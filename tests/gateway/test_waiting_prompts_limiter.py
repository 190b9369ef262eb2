"""The bytes of prompts that wait to be tokenized are bounded: model first."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import ClientLimit
from gateway.core.waiting_prompts_limiter import WaitingPromptsLimiter

TOTAL = 20
STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "remove"]), st.sampled_from("abcd"), st.integers(1, 9)))


@given(STEPS)
def test_bounds_hold_and_tokenizing_makes_room(steps: list[tuple[str, str, int]]) -> None:
    limiter, model = WaitingPromptsLimiter(TOTAL), list[tuple[str, int]]()
    for act, client, size in steps:
        own = [(owner, waiting) for owner, waiting in model if owner == client]
        if act == "remove":
            if own:
                model.remove(own[0])
                limiter.remove(*own[0])
        elif sum(waiting for _, waiting in own) >= TOTAL - sum(waiting for _, waiting in model):
            with pytest.raises(ClientLimit, match="at most 20"):
                limiter.add(client, size)
        else:
            limiter.add(client, size)
            model.append((client, size))
        limiter.check_invariants()


def test_a_client_that_takes_all_it_gets_leaves_room_for_others() -> None:
    limiter = WaitingPromptsLimiter(1000)
    for flooder in "abc":
        with contextlib.suppress(ClientLimit):
            while True:
                limiter.add(flooder, 10)
    limiter.add("quiet", 10)
    limiter.check_invariants()


def test_any_prompt_may_wait_where_none_does() -> None:
    limiter = WaitingPromptsLimiter(10)
    limiter.add("a", 1_000_000)
    with pytest.raises(ClientLimit):
        limiter.add("b", 1)
    limiter.remove("a", 1_000_000)
    limiter.add("b", 1)
