"""The decision about a call against a naive model, with all limits to itself and by leases; and its clock."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import product
from statistics import median

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlead.outcomes import Outcome
from serving.cost import WeightedTokens
from tests.unit.throttler.named_budgets import budgets_of
from tests.unit.throttler.test_throttles import NaiveOit
from throttler.core.budget import BudgetDemand
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budgets import Budgets
from throttler.core.decider import Arrival, Decider, Permit
from throttler.core.expectations import Expectations, ExpectationSubject
from throttler.core.habits import PRIOR_PAUSE
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.interactions import FinishedInteraction, Interactions
from throttler.core.leased_quota import LeasedQuota
from throttler.core.oit import Oit
from throttler.core.profiles import AppProfile, Expectation, Profiles, RateLimits
from throttler.core.quota_ledger import QuotaLedger
from throttler.core.throttle import Caller, Rejected
from throttler.core.throttles import Rpm, Unlimited
from throttler.core.windows import LimitStatus, LocalQuota, Quota, QuotaAccount, QuotaDemand
from throttler.core.working_sets import Context

LIMITS = RateLimits(
    user_per_minute=3, app_per_minute=3, tenant_per_minute=4, kappa=2, max_calls=3, idle_ttl=20.0, max_age=50.0
)
PRIOR, REFERENCE = 100.0, 50.0
PROFILES = Profiles(
    limits=LIMITS,
    apps={"x": AppProfile(per_minute=3, max_calls=3, expected=Expectation(input=PRIOR))},
    reference_tokens=REFERENCE,
)
CALLERS = st.builds(Caller, st.just("t"), st.sampled_from(["t/u", "t/v"]), st.sampled_from("xy"))
IDS = st.sampled_from(["", "i", "j"])
KEY = InteractionKey("t/u", "x", "i")
CALL = Arrival(Caller("t", "t/u", "x"), "i", overloaded=True)


@dataclass
class NaiveInteraction:
    """One interaction, until it is over."""

    opened: float
    stage: int = 0  # of the next call
    withdrawn: int = 0
    in_flight: int = 0
    since: float = 0.0  # when it last became idle or busy
    ending: bool = False

    def is_over(self, now: float) -> bool:
        if self.in_flight:
            return self.ending or self.stage >= 3
        return self.stage >= 3 or now - self.since >= 20 or now - self.opened >= 50

    def admit(self, now: float) -> int:
        if not self.in_flight:
            self.since = now
        self.in_flight += 1
        self.stage += 1
        return self.stage - 1

    def leave(self, now: float) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self.opened += now - self.since
            self.since = now


class NaiveDecider:
    """Keeps every arrival, every interaction that is not over and every call's tokens."""

    def __init__(self) -> None:
        self.oit = NaiveOit(of_app=3, of_tenant=4)
        self.interactions: dict[InteractionKey, NaiveInteraction] = {}
        self.closed: Counter[tuple[InteractionKey, int]] = Counter()
        self.weights: dict[ExpectationSubject, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def decide(self, arrival: Arrival, now: int) -> Outcome | tuple[bool, int, float]:
        key = InteractionKey(arrival.caller.client, arrival.caller.app, arrival.interaction)
        known = self.interactions.get(key)
        continues = known is not None and not known.is_over(now)
        decision = self.oit.admit(arrival.caller, continues, arrival.overloaded, now)
        if isinstance(decision, Outcome):
            return decision
        stage = 0
        if arrival.interaction:
            if known is None or not (continues or known.in_flight):
                self.close(key)
                known = self.interactions[key] = NaiveInteraction(now)
            stage = known.admit(now)
        return decision, stage, self.norm(arrival, stage)

    def norm(self, arrival: Arrival, stage: int) -> float:
        if not arrival.app_is_bound or arrival.caller.app != "x":
            return 1.0
        seen = self.weights[ExpectationSubject("t", "x", stage)]
        learned = median([median(weights[-15:]) for weights in seen.values()]) if seen else PRIOR
        return min(max(learned, PRIOR / 2), 2 * PRIOR) / REFERENCE

    def ended(self, permit: Permit, needed: float | None, now: float) -> None:
        arrival = permit.arrival
        if needed is not None and arrival.app_is_bound:
            self.weights[ExpectationSubject("t", arrival.caller.app, permit.stage)][arrival.caller.client].append(
                needed
            )
        if permit.key is not None:
            known = self.interactions[permit.key]
            known.ending |= arrival.last
            self.leave(permit.key, now)

    def withdrawn(self, permit: Permit, now: float) -> None:
        if permit.key is not None:
            known = self.interactions[permit.key]
            if permit.stage == known.stage - 1:
                known.stage -= 1
            else:
                known.withdrawn += 1
            self.leave(permit.key, now)

    def end_interaction(self, key: InteractionKey, now: float) -> None:
        known = self.interactions.get(key)
        if known is not None and known.in_flight:
            known.ending = True
        elif known is not None and not known.is_over(now):
            self.close(key)

    def sweep(self, now: float) -> None:
        for key, known in list(self.interactions.items()):
            if not known.in_flight and known.is_over(now):
                self.close(key)

    def leave(self, key: InteractionKey, now: float) -> None:
        known = self.interactions[key]
        known.leave(now)
        if known.in_flight:
            return
        if known.stage == known.withdrawn:
            del self.interactions[key]
        elif known.ending or known.stage >= 3:
            self.close(key)

    def close(self, key: InteractionKey) -> None:
        known = self.interactions.pop(key, None)
        if known is not None:
            self.closed[key, known.stage] += 1


class DeciderMachine(RuleBasedStateMachine):
    """Random calls of few clients; each is settled once, or still in flight."""

    always_overloaded = False

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.model = NaiveDecider()
        self.permits: list[Permit] = []
        self.tokens: dict[InteractionKey, bytes] = {}  # that clients were given
        self.closed: Counter[tuple[InteractionKey, int]] = Counter()
        self.oit = Oit(PROFILES, self.quota())
        self.decider = Decider(
            self.oit,
            Interactions("s", PROFILES),
            Expectations(PROFILES),
            Budgets(PROFILES, BudgetAccounts(), WeightedTokens()),
        )
        self.decider.synchronize(1.7e9)

    def quota(self) -> Quota:
        return LocalQuota()

    def ask(self, account: QuotaAccount, more: int = 1) -> None:
        raise AssertionError("there is nobody to ask")

    def tell(self, *closed: FinishedInteraction | None) -> None:
        for each in closed:
            if each is not None:
                self.closed[each.key, each.calls] += 1

    @rule(seconds=st.sampled_from([1, 5, 20, 50]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(caller=CALLERS, interaction=IDS, last=st.booleans(), bound=st.booleans(), overloaded=st.booleans())
    def arrives(self, caller: Caller, interaction: str, last: bool, bound: bool, overloaded: bool) -> None:
        token = self.tokens.get(InteractionKey(caller.client, caller.app, interaction), b"")
        overloaded = overloaded or self.always_overloaded
        arrival = Arrival(caller, interaction, token, last=last, app_is_bound=bound, overloaded=overloaded)
        while isinstance(decision := self.decider.decide(arrival, self.now), QuotaDemand):
            self.ask(decision.account, decision.amount)
        assert not isinstance(decision, BudgetDemand)
        expected = self.model.decide(arrival, self.now)
        if isinstance(decision, Rejected):
            assert decision.outcome is expected
            assert 0 < decision.retry_after <= 60
            return
        assert (decision.protected, decision.stage, decision.norm) == expected
        assert bool(decision.token) == bool(interaction)
        self.permits.append(decision)

    @rule(client=st.sampled_from(["t/u", "t/v"]))
    def refused(self, client: str) -> None:
        self.decider.refused(client, self.now)
        self.model.oit.refused(client, self.now)

    @precondition(lambda self: self.permits)
    @rule(data=st.data(), needed=st.none() | st.sampled_from([20.0, 80.0, 150.0, 500.0]))
    def ends(self, data: st.DataObject, needed: float | None) -> None:
        permit = self.permits.pop(data.draw(st.integers(0, len(self.permits) - 1)))
        if permit.key is not None:
            self.tokens[permit.key] = permit.token
        tokens = None if needed is None else Expectation(input=needed)
        self.tell(self.decider.ended(permit, tokens, self.now))
        self.model.ended(permit, needed, self.now)

    @precondition(lambda self: self.permits)
    @rule(data=st.data())
    def is_withdrawn(self, data: st.DataObject) -> None:
        permit = self.permits.pop(data.draw(st.integers(0, len(self.permits) - 1)))
        self.tell(self.decider.withdrawn(permit, self.now))
        self.model.withdrawn(permit, self.now)

    @rule(caller=CALLERS, interaction=st.sampled_from("ij"))
    def is_over(self, caller: Caller, interaction: str) -> None:
        key = InteractionKey(caller.client, caller.app, interaction)
        self.tell(self.decider.end_interaction(key, self.tokens.get(key, b""), self.now))
        self.model.end_interaction(key, self.now)

    @rule()
    def sweep(self) -> None:
        self.tell(*self.decider.expired(self.now))
        self.model.sweep(self.now)
        assert self.closed == self.model.closed

    @invariant()
    def limits_are_told_as_they_are(self) -> None:
        for user, app in product("uv", "xy"):
            caller = Caller("t", f"t/{user}", app)
            oit, since = self.model.oit, self.now - 60
            left = []
            for limit, arrivals, key in (
                (3, oit.users, caller.client), (3, oit.apps, ("t", app)), (4, oit.tenants, "t"),
            ):  # fmt: skip
                counted = [when for name, when in arrivals if name == key and when > since]
                reset = counted[-1] - since if counted else 0
                left.append(LimitStatus(limit, max(0, limit - len(counted)), reset))
            assert self.decider.limit_status(caller, self.now) == min(left, key=lambda status: status.remaining)

    @invariant()
    def its_state_is_told_as_it_is(self) -> None:
        state = self.decider.state(self.now)
        busy = sum(known.in_flight > 0 for known in self.model.interactions.values())
        assert (state.interactions_in_flight, state.interactions_idle) == (busy, len(self.model.interactions) - busy)
        exhausted = {}
        for client in ("t/u", "t/v"):
            times = [when for name, when in self.model.oit.users if name == client and when > self.now - 60]
            if len(times) >= 3:
                exhausted[QuotaAccount(f"user:{client}", 3)] = times[-3] + 60 - self.now
        assert {account: left for account, left in state.exhausted.items() if account in exhausted} == exhausted

    @invariant()
    def nothing_is_impossible(self) -> None:
        self.decider.check_invariants()


class LeasingMachine(DeciderMachine):
    """The only one that shares limits by leases must decide the same, while it may ask for what it lacks."""

    always_overloaded = True

    def quota(self) -> Quota:
        self.leases, self.ledger = LeasedQuota(60.0), QuotaLedger(60.0)
        self.leases.set_gateways(self.ledger.beat("g", self.now), self.now)
        self.leases.restore(self.now)
        return self.leases

    def ask(self, account: QuotaAccount, more: int = 1) -> None:
        ask = self.leases.ask(account, self.oit.window.used(account.key, self.now), more, self.now)
        self.leases.answered(ask, self.ledger.ask("g", ask, 1, self.now), self.now, self.now)

    @rule()
    def report(self) -> None:
        for account in self.leases.take_due():
            self.ask(account, more=0)

    @invariant()
    def leases_are_possible(self) -> None:
        self.leases.check_invariants()
        self.ledger.check_invariants()


DeciderMachine.TestCase.settings = LeasingMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestDecider = DeciderMachine.TestCase
TestLeasing = LeasingMachine.TestCase


OF_TOKENS = RateLimits(budgets=budgets_of(user_tokens_per_minute=100), kappa=2)
OF_COST = RateLimits(budgets=budgets_of(user_cost_per_minute=100), kappa=2)


def asking(tokens: int, interaction: str = "", *, overloaded: bool = True) -> Arrival:
    """A call with a prompt of so many tokens, each of which costs one unit."""
    return Arrival(CALL.caller, interaction, overloaded=overloaded, prompt_tokens=tokens)


def decider(limits: RateLimits = LIMITS) -> Decider:
    profiles = Profiles(limits=limits)
    return Decider(
        Oit(profiles, LocalQuota()),
        Interactions("s", profiles),
        Expectations(profiles),
        Budgets(profiles, BudgetAccounts(), WeightedTokens()),
    )


def permit_of(decision: Permit | Rejected | QuotaDemand | BudgetDemand) -> Permit:
    assert isinstance(decision, Permit)
    return decision


def test_limits_of_each_minute_of_the_clock_are_told_as_they_are() -> None:
    profiles = Profiles(limits=LIMITS)
    d = Decider(
        Rpm(profiles, LocalQuota()),
        Interactions("s", profiles),
        Expectations(profiles),
        Budgets(profiles, BudgetAccounts(), WeightedTokens()),
    )
    assert d.limit_status(CALL.caller, 70.0) == LimitStatus(limit=3, remaining=3, reset=0.0)
    for _ in range(5):
        d.decide(CALL, 70.0)
    assert d.limit_status(CALL.caller, 71.0) == LimitStatus(limit=3, remaining=0, reset=49.0)
    others = [Caller("t", "t/v", app) for app in "xy"]
    assert d.limit_status(others[0], 71.0) == LimitStatus(limit=3, remaining=0, reset=49.0), "of the app"
    assert d.limit_status(others[1], 71.0) == LimitStatus(limit=4, remaining=1, reset=49.0), "of the tenant"
    assert d.limit_status(CALL.caller, 120.0) == LimitStatus(limit=3, remaining=3, reset=0.0)


def test_a_limit_that_was_lowered_leaves_nothing_and_none_is_told_where_there_is_none() -> None:
    d, profiles = decider(), Profiles(limits=RateLimits(user_per_minute=1))
    for _ in range(3):
        d.decide(CALL, 0.0)
    d.configure(profiles)
    assert d.limit_status(CALL.caller, 10.0) == LimitStatus(limit=1, remaining=0, reset=50.0)
    unlimited = Decider(
        Unlimited(),
        Interactions("s", profiles),
        Expectations(profiles),
        Budgets(profiles, BudgetAccounts(), WeightedTokens()),
    )
    assert unlimited.limit_status(CALL.caller, 10.0) is None


def test_new_profiles_apply_to_limits_interactions_and_expectations() -> None:
    d = decider()
    bound = CALL._replace(app_is_bound=True, overloaded=False)
    first = permit_of(d.decide(bound, 0.0))
    assert first.norm == 1.0, "nothing is expected of an app without a prior"
    d.ended(first, None, 0.0)
    app = AppProfile(per_minute=5, max_calls=1, expected=Expectation(input=PRIOR))
    d.configure(Profiles(limits=LIMITS, apps={"x": app}, reference_tokens=REFERENCE))
    again = permit_of(d.decide(bound, 1.0))
    assert (again.stage, again.protected) == (0, False), "an interaction of one call is over"
    assert again.norm == PRIOR / REFERENCE


def test_the_tokens_of_a_completed_call_are_expected_of_the_next_one() -> None:
    d = Decider(
        Unlimited(),
        Interactions("s", PROFILES),
        Expectations(PROFILES),
        Budgets(PROFILES, BudgetAccounts(), WeightedTokens()),
    )
    bound = CALL._replace(interaction="", app_is_bound=True)
    for needed, norm in ((None, PRIOR), (Expectation(input=150.0), PRIOR), (None, 150.0)):
        permit = permit_of(d.decide(bound, 0.0))
        assert permit.norm == norm / REFERENCE
        d.ended(permit, needed, 0.0)


def test_a_call_that_is_withdrawn_opens_no_interaction_and_ends_none() -> None:
    d = decider()
    for now in range(3):
        d.withdrawn(permit_of(d.decide(CALL._replace(last=True), now)), now)
    assert isinstance(d.decide(CALL, 3.0), Rejected), "three arrivals were counted, and it continues nothing"
    opened = permit_of(d.decide(CALL, 62.0))
    assert opened.stage == 0
    d.ended(opened, None, 62.0)
    d.withdrawn(permit_of(d.decide(CALL._replace(last=True), 62.0)), 62.0)
    again = permit_of(d.decide(CALL, 62.0))
    assert (again.stage, again.protected) == (1, True)


def test_the_token_of_a_call_outlives_no_end_though_an_earlier_call_was_withdrawn() -> None:
    d = decider()
    first, second = (permit_of(d.decide(CALL, 0.0)) for _ in range(2))
    assert d.withdrawn(first, 1.0) is None
    assert d.ended(second, None, 1.0) is None
    closed = d.end_interaction(KEY, second.token, 2.0)
    assert closed is not None
    assert closed.key == KEY
    assert not permit_of(d.decide(CALL._replace(token=second.token), 3.0)).protected


def test_gateways_whose_clocks_began_at_other_times_read_each_others_tokens() -> None:
    old, new = decider(), decider()
    old.synchronize(1.7e9)  # since when both are up: 1,000,000 s and 10 s
    new.synchronize(1.7e9 + 999_990)
    opened = permit_of(old.decide(CALL, 1_000_000.0))
    old.ended(opened, None, 1_000_001.0)
    carried = CALL._replace(token=opened.token)
    assert not permit_of(new.decide(carried, 10.0 + LIMITS.max_age)).protected
    assert permit_of(new.decide(carried, 12.0)).protected


@pytest.mark.parametrize("step", [-7200.0, 7200.0])
def test_a_wall_clock_that_is_set_changes_no_limit_and_ends_no_interaction(step: float) -> None:
    d = decider()
    d.synchronize(1.7e9)
    permit = permit_of(d.decide(CALL, 0.0))
    d.ended(permit, None, 1.0)
    d.synchronize(1.7e9 + step)
    again = permit_of(d.decide(CALL._replace(token=permit.token), 2.0))
    assert (again.stage, again.protected) == (1, True)
    d.ended(again, None, 2.0)
    assert d.expired(2.0) == []
    other = CALL._replace(interaction="")
    assert isinstance(d.decide(other, 2.0), Permit)
    assert isinstance(d.decide(other, 2.0), Rejected), "the fourth call within a minute"


@pytest.mark.parametrize("limits", [OF_TOKENS, OF_COST])
def test_a_call_that_is_withdrawn_gives_back_what_it_reserved_and_no_more(limits: RateLimits) -> None:
    d = decider(limits)
    assert isinstance(d.decide(asking(10), 0.0), Permit)
    d.withdrawn(permit_of(d.decide(asking(60), 0.0)), 0.0)
    assert isinstance(d.decide(asking(91), 0.0), Rejected)
    assert isinstance(d.decide(asking(90), 0.0), Permit)


def test_the_tokens_that_calls_used_are_booked_with_and_without_a_reservation() -> None:
    d = decider(OF_TOKENS)
    assert d.token_status(CALL.caller, 0.0) == LimitStatus(limit=100, remaining=100, reset=0.0)
    d.budgets.settle(permit_of(d.decide(asking(50), 0.0)).reservation, d.budgets.measured(20, 10), 0.0)
    d.budgets.reserve(CALL.caller, d.budgets.measured(10, 0), False, 0.0)
    status = d.token_status(CALL.caller, 0.0)
    assert status is not None
    assert status.remaining == 60


def test_calls_booked_without_a_reservation_leave_protected_calls_their_cap() -> None:
    d = decider(OF_TOKENS)
    opened = permit_of(d.decide(asking(5, "i"), 0.0))
    d.budgets.reserve(CALL.caller, d.budgets.measured(150, 0), False, 0.0)
    assert permit_of(d.decide(asking(60, "i")._replace(token=opened.token), 0.0)).protected


def test_a_call_is_protected_while_its_clients_protected_tokens_are_within_the_cap() -> None:
    d = decider(OF_TOKENS)
    calls = [permit_of(d.decide(asking(tokens, "i", overloaded=False), 0.0)) for tokens in (5, 200, 1)]
    assert [call.protected for call in calls] == [False, True, False]


def test_limits_in_tokens_hold_when_the_throttle_enforces_limits() -> None:
    d = decider(OF_TOKENS)
    assert isinstance(d.decide(asking(80, overloaded=False), 0.0), Permit)
    assert isinstance(d.decide(asking(80, overloaded=False), 0.0), Permit)
    before = d.limit_status(CALL.caller, 0.0)
    refused = d.decide(asking(30, "new"), 0.0)
    assert isinstance(refused, Rejected)
    assert refused.outcome is Outcome.THROTTLED_USER, "it continues no interaction"
    after = d.limit_status(CALL.caller, 0.0)
    assert before is not None
    assert after is not None
    assert after.remaining == before.remaining - 1, "it counts as a call"


def test_new_profiles_apply_to_limits_in_tokens() -> None:
    d = decider(RateLimits())
    assert d.token_status(CALL.caller, 0.0) is None
    d.configure(Profiles(limits=OF_TOKENS))
    assert d.token_status(CALL.caller, 0.0) == LimitStatus(limit=100, remaining=100, reset=0.0)


def test_where_nothing_is_limited_no_limit_in_tokens_is_told() -> None:
    profiles = Profiles(limits=OF_TOKENS)
    d = Decider(
        Unlimited(),
        Interactions("s", profiles),
        Expectations(profiles),
        Budgets(profiles, BudgetAccounts(), WeightedTokens()),
    )
    assert d.token_status(CALL.caller, 0.0) is None


def test_background_calls_use_up_no_rate_unless_limits_always_hold() -> None:
    profiles = Profiles(limits=LIMITS)
    free = CALL._replace(interaction="", background=True)
    for throttle, is_free in ((Oit(profiles, LocalQuota()), True), (Rpm(profiles, LocalQuota()), False)):
        d = Decider(
            throttle,
            Interactions("s", profiles),
            Expectations(profiles),
            Budgets(profiles, BudgetAccounts(), WeightedTokens()),
        )
        decisions = [d.decide(free, 0.0) for _ in range(LIMITS.user_per_minute + 1)]
        assert isinstance(decisions[-1], Permit) is is_free
        assert isinstance(d.decide(CALL, 0.0), Permit) is is_free


def test_a_new_interaction_waits_for_the_memory_of_those_that_go_on_and_a_background_call_does_not() -> None:
    d = decider(RateLimits())
    call = CALL._replace(prompt_tokens=400, pool_tokens=1000)
    permits = [permit_of(d.decide(call._replace(interaction=name), 0.0)) for name in "ij"]
    new = call._replace(interaction="new")
    refused = d.decide(new, 0.0)
    assert isinstance(refused, Rejected)
    assert refused.outcome is Outcome.THROTTLED_MEMORY
    assert isinstance(d.decide(new._replace(background=True, interaction="other"), 0.0), Permit)
    for permit in permits:
        d.ended(permit, None, 0.0, Context(400, 0))
    assert isinstance(d.decide(new, PRIOR_PAUSE - 1), Rejected)
    assert isinstance(d.decide(new, PRIOR_PAUSE), Permit), "the others rest"


def test_an_interaction_that_is_opened_again_under_its_name_has_its_whole_budget() -> None:
    d = decider(RateLimits(budgets=budgets_of(interaction_tokens=100)))
    first = permit_of(d.decide(asking(80, "i")._replace(last=True), 0.0))
    assert isinstance(d.decide(asking(80, "i"), 0.0), Rejected)
    d.ended(first, None, 0.0)
    assert isinstance(d.decide(asking(80, "i"), 0.0), Permit)
