"""Calls are admitted by the throttler and by the limit on open calls, and settled once: model first."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import ClientLimit, FairleadError, QueueFull, ThrottledUser
from gateway.core.client_limits import CallAdmission, OpenCallLimiter
from serving.cost import WeightedTokens
from tests.unit.throttler.named_budgets import budgets_of
from throttler.core.budget import TokenUse
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budgets import Budgets
from throttler.core.decider import Arrival, Decider, Permit
from throttler.core.expectations import Expectations
from throttler.core.interactions import Interactions
from throttler.core.profiles import Profiles, RateLimits
from throttler.core.throttle import Caller
from throttler.core.throttles import Rpm
from throttler.core.windows import LocalQuota

PER_MINUTE, PER_CLIENT = 6, 2
CLIENTS = ("a", "b")
STEPS = st.lists(
    st.tuples(st.sampled_from(["admit", "admit", "ended", "withdrawn"]), st.sampled_from(CLIENTS), st.integers(0, 9)),
    max_size=40,
)


def admission(tokens: int | None = None) -> CallAdmission[int]:
    budgets = budgets_of(user_tokens_per_minute=tokens) if tokens else ()
    profiles = Profiles(limits=RateLimits(user_per_minute=PER_MINUTE, budgets=budgets))
    quota = LocalQuota()
    decider = Decider(
        Rpm(profiles, quota),
        Interactions("secret", profiles),
        Expectations(profiles),
        Budgets(profiles, BudgetAccounts(), WeightedTokens()),
    )
    return CallAdmission(decider, OpenCallLimiter(per_client=PER_CLIENT, total=1000))


def arrival(client: str, interaction: str = "", last: bool = False) -> Arrival:
    return Arrival(Caller("tenant", client, "app"), interaction, last=last)


@given(STEPS)
def test_calls_are_refused_by_the_throttle_first_and_then_by_their_number(steps: list[tuple[str, str, int]]) -> None:
    calls, arrived, held = admission(), Counter[str](), dict[int, tuple[str, bool]]()
    for number, (act, client, chosen) in enumerate(steps):
        if act == "admit":
            is_open = [each == client and opened for each, opened in held.values()]
            expected: type[FairleadError] | None = None
            if arrived[client] >= PER_MINUTE:
                expected = ThrottledUser
            elif sum(is_open) >= PER_CLIENT:
                expected = ClientLimit
            if expected is None:
                assert isinstance(calls.admit(number, arrival(client), 0.0), Permit)
            else:
                with pytest.raises(expected):
                    calls.admit(number, arrival(client), 0.0)
            arrived[client] += 1
            if expected is not ThrottledUser:
                held[number] = client, expected is None
        elif act == "ended":
            held.pop(chosen, None)
            assert calls.ended(chosen, TokenUse(0, 0), None, 0.0) is None
        else:
            held.pop(chosen, None)
            assert calls.withdrawn(chosen, 0.0) is None
        assert [each for each in range(len(steps)) if calls.permit(each) is not None] == sorted(held)
        calls.check_invariants()


def test_a_call_that_only_the_number_of_open_calls_refuses_holds_its_permit_until_it_is_withdrawn() -> None:
    calls = admission()
    for number in range(PER_CLIENT):
        calls.admit(number, arrival("a"), 0.0)
    with pytest.raises((ClientLimit, QueueFull)):
        calls.admit(9, arrival("a", "i"), 0.0)
    assert calls.permit(9) is not None
    calls.withdrawn(9, 0.0)
    calls.ended(0, TokenUse(0, 0), None, 0.0)
    assert isinstance(calls.admit(9, arrival("a", "i"), 0.0), Permit)


def test_the_interaction_that_closes_with_a_call_is_returned_once() -> None:
    calls = admission()
    calls.admit(1, arrival("a", "i", last=True), 0.0)
    closed = calls.ended(1, TokenUse(0, 0), None, 1.0)
    assert closed is not None
    assert (closed.key.id, closed.calls) == ("i", 1)
    assert calls.ended(1, TokenUse(0, 0), None, 2.0) is None


def test_a_call_that_has_ended_uses_as_many_tokens_as_it_had_and_not_as_it_reserved() -> None:
    calls, asking = admission(tokens=100), arrival("a")._replace(prompt_tokens=50, max_tokens=50)
    calls.admit(1, asking, 0.0)
    with pytest.raises(ThrottledUser):
        calls.admit(2, asking, 0.0)
    calls.ended(1, TokenUse(0, 0), None, 0.0)
    assert isinstance(calls.admit(3, asking, 0.0), Permit)
