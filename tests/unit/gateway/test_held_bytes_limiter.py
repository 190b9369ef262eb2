"""The bytes that are held for callers are bounded: model first."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import ClientLimit
from gateway.core.client_limits import OF_FREE, HeldBytesLimiter

TOTAL = 40
CLIENTS = ("a", "b/u", "b/v", "b/w", "b/x")
STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "remove"]), st.sampled_from(CLIENTS), st.integers(1, 9)))


def most(model: list[tuple[str, int]], client: str) -> int:
    of_tenant = sum(size for owner, size in model if owner.partition("/")[0] == client.partition("/")[0])
    free = TOTAL - sum(waiting for _, waiting in model)
    return min(free, OF_FREE * free - of_tenant)


@given(STEPS)
def test_bounds_hold_and_tokenizing_makes_room(steps: list[tuple[str, str, int]]) -> None:
    limiter, model = HeldBytesLimiter(TOTAL, "prompts"), list[tuple[str, int]]()
    for act, client, size in steps:
        own = [(owner, waiting) for owner, waiting in model if owner == client]
        if act == "remove":
            if own:
                model.remove(own[0])
                limiter.remove(*own[0])
        elif sum(waiting for _, waiting in own) >= most(model, client):
            with pytest.raises(ClientLimit, match="at most 40"):
                limiter.add(client, size)
        else:
            limiter.add(client, size)
            model.append((client, size))
        limiter.check_invariants()


def test_a_client_that_takes_all_it_gets_leaves_room_for_others() -> None:
    limiter = HeldBytesLimiter(1000, "prompts")
    for flooder in "abc":
        with contextlib.suppress(ClientLimit):
            while True:
                limiter.add(flooder, 10)
    limiter.add("quiet", 10)
    limiter.check_invariants()


def test_a_tenant_with_many_users_leaves_room_for_others() -> None:
    limiter = HeldBytesLimiter(1000, "prompts")
    for user in range(1000):
        with contextlib.suppress(ClientLimit):
            limiter.add(f"many/{user}", 1)
    for _ in range(100):
        limiter.add("few/one", 1)
    limiter.check_invariants()


def test_any_prompt_may_wait_where_none_does() -> None:
    limiter = HeldBytesLimiter(10, "prompts")
    limiter.add("a", 1_000_000)
    with pytest.raises(ClientLimit):
        limiter.add("b", 1)
    limiter.remove("a", 1_000_000)
    limiter.add("b", 1)


def test_a_client_may_have_less_than_what_is_free() -> None:
    limiter = HeldBytesLimiter(10, "prompts")
    limiter.add("a", 5)
    with pytest.raises(ClientLimit, match="5 of this client; at most 10"):
        limiter.add("a", 1)
    limiter.add("b", 1)
