"""Budgets: reserved, settled, never overshot by reservations; a naive model agrees step by step."""

import itertools
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlead.outcomes import Outcome
from serving.cost import Normalized, Profiled, WeightedTokens
from tests.unit.throttler.named_budgets import budgets_of
from throttler.core.budget import SLICES, BudgetAccount, SlidingSpan, TokenUse
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budgets import Budgets
from throttler.core.decider import Arrival, Decider, Permit
from throttler.core.expectations import Expectations
from throttler.core.interactions import Interactions
from throttler.core.oit import Oit
from throttler.core.profiles import AppProfile, Expectation, Profiles, RateLimits
from throttler.core.throttle import Caller, Rejected
from throttler.core.throttles import THROTTLES
from throttler.core.windows import LimitStatus, LocalQuota, QuotaAccount

MANY = 1_000_000
LIMITS = RateLimits(
    user_per_minute=MANY,
    app_per_minute=MANY,
    kappa=2,
    budgets=budgets_of(
        user_tokens_per_minute=100,
        app_tokens_per_minute=200,
        tenant_tokens_per_minute=250,
        user_cost_per_minute=170,
        tenant_cost_per_minute=330,
    ),
)
PROFILES = Profiles(limits=LIMITS, reference_tokens=10)
CALLERS = st.sampled_from([Caller("t", f"t/{user}", app) for user in "uvw" for app in "aab"])
AMOUNTS = st.integers(1, 120)


SPAN = SlidingSpan("minute", 64.0)
ACCOUNT = BudgetAccount("a", 100, SPAN)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["book", "give back"]), st.sampled_from("ab"), st.integers(0, 50), st.integers(0, 40)
        ),
        max_size=60,
    )
)
def test_an_account_counts_what_was_booked_less_what_was_given_back(steps: list[tuple[str, str, int, int]]) -> None:
    accounts, now = BudgetAccounts(), 0
    booked: list[list[int | str]] = []  # key, second, amount; a slice of 64 seconds with 64 slices is a second
    for step, key, amount, pause in steps:
        now += pause
        if step == "book":
            booked.append([key, accounts.book(BudgetAccount(key, 100, SPAN), amount, now), amount])
        elif booked:
            entry = booked[amount % len(booked)]
            assert isinstance(entry[1], int)
            assert isinstance(entry[2], int)
            returned = min(amount, entry[2])
            accounts.give_back(BudgetAccount(str(entry[0]), 100, SPAN), entry[1], returned, now)
            entry[2] -= returned
        for name in "ab":
            counted = [(at, n) for which, at, n in booked if which == name and int(at) + 1 + SLICES > now]
            total = sum(int(n) for _, n in counted)
            account = BudgetAccount(name, 100, SPAN)
            assert accounts.used(account, now) == total
            assert accounts.fits(account, 30, now) == (total + 30 <= 100)
            last = max((int(at) for at, n in counted if n), default=0)
            assert accounts.reset(account, now) == (last + 65 - now if total else 0)
            if total + 30 > 100:
                leaves = sorted({int(at) + 65 for at, _ in counted})
                fits = [then for then in leaves if sum(int(n) for at, n in counted if int(at) + 65 > then) + 30 <= 100]
                assert accounts.wait(account, 30, now) == fits[0] - now
        accounts.check_invariants()


def test_an_amount_fits_as_soon_as_enough_has_left() -> None:
    accounts = BudgetAccounts()
    assert accounts.wait(ACCOUNT, 101, 0.0) == 4.0, "it never fits: ask again after a sixteenth of the window"
    for now in (0.0, 1.0, 2.0):
        accounts.book(ACCOUNT, 30, now)
    assert [accounts.wait(ACCOUNT, amount, 2.0) for amount in (40, 41, 70, 71)] == [63.0, 64.0, 64.0, 65.0]


def test_accounts_are_forgotten_once_their_bookings_have_left_the_window() -> None:
    accounts = BudgetAccounts()
    month = BudgetAccount("old and long", 100, SlidingSpan("month", 64_000.0))
    accounts.book(month, 1, 0.0)
    for second in range(1000):
        accounts.book(BudgetAccount(f"caller {second}", 1, SPAN), 1, float(second))
    for second in range(1000, 1100):
        accounts.book(ACCOUNT, 0, float(second))
    assert accounts.used(month, 1100.0) == 1
    known = [account.key for account in accounts.exhausted(1040.0)]
    assert len(known) < 100


class NaiveLimits:
    """All bookings for ever, summed up anew at each question; amounts leave the window with their slice."""

    def __init__(self) -> None:
        self.booked: dict[str, list[tuple[float, int]]] = defaultdict(list)

    def used(self, key: str, now: float) -> int:
        return sum(n for at, n in self.booked[key] if (at * SLICES // 60 + 1) * 60 / SLICES + 60 > now)

    def outcome(self, caller: Caller, use: TokenUse, protected: bool, now: float) -> Outcome | None:
        user, app = caller.client, caller.app
        for unit, amount, of_user, of_app, of_tenant in (
            ("tokens", use.tokens, 100, 200, 250),
            ("cost", use.cost, 170, MANY, 330),
        ):
            if protected and all(
                self.used(cap, now) + amount <= 2 * limit
                for cap, limit in ((f"{unit} protected {user}", of_user), (f"{unit} protected t", of_tenant))
            ):
                continue
            if self.used(f"{unit} of {user}", now) + amount > of_user:
                return Outcome.THROTTLED_USER
            if self.used(f"{unit} of app {app}", now) + amount > of_app:
                return Outcome.THROTTLED_APP
            if self.used(f"{unit} of t", now) + amount > of_tenant:
                return Outcome.THROTTLED_TENANT
        return None

    def reserve(self, caller: Caller, use: TokenUse, protected: bool, now: float) -> list[tuple[str, int]]:
        """Book, and return each account with the place of its unit in a TokenUse."""
        accounts = []
        for place, (unit, of_user, of_app, of_tenant) in enumerate(
            (("tokens", 100, 200, 250), ("cost", 170, MANY, 330))
        ):
            amount, user, app = use[place], f"{unit} of {caller.client}", f"{unit} of app {caller.app}"
            names = [user]
            if self.used(user, now) + amount <= of_user:
                names.append(app)
                if self.used(app, now) + amount <= of_app:
                    names.append(f"{unit} of t")
            mine, tenants = f"{unit} protected {caller.client}", f"{unit} protected t"
            is_within = (
                self.used(mine, now) + amount <= 2 * of_user and self.used(tenants, now) + amount <= 2 * of_tenant
            )
            if protected and is_within:
                names += [mine, tenants]
            accounts += [(name, place) for name in names]
        for name, place in accounts:
            self.booked[name].append((now, use[place]))
        return accounts

    def settle(self, accounts: list[tuple[str, int]], at: float, use: TokenUse, used: TokenUse, now: float) -> None:
        for name, place in accounts:
            when = at if used[place] < use[place] else now
            self.booked[name].append((when, used[place] - use[place]))


class TokenMachine(RuleBasedStateMachine):
    """Random calls of three users of two apps, with and without overload, settled in any order or never."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.model = NaiveLimits()
        tokens = Budgets(PROFILES, BudgetAccounts(), WeightedTokens())
        self.decider = Decider(Oit(PROFILES, LocalQuota()), Interactions("s", PROFILES), Expectations(PROFILES), tokens)
        self.decider.synchronize(1.68e9)
        self.open: list[tuple[Permit, list[tuple[str, int]], float]] = []
        self.interactions = itertools.count()

    @rule(seconds=st.sampled_from([0.5, 1, 5, 20, 50]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(caller=CALLERS, prompt=AMOUNTS, output=AMOUNTS, continues=st.booleans(), overloaded=st.booleans())
    def arrives(self, caller: Caller, prompt: int, output: int, continues: bool, overloaded: bool) -> None:
        arrival = Arrival(caller, overloaded=overloaded, prompt_tokens=prompt, max_tokens=output)
        if continues:  # an interaction whose first call was free, because nothing was overloaded
            name, first = f"i{next(self.interactions)}", Arrival(caller, prompt_tokens=1, max_tokens=1)
            opened = self.decider.decide(first._replace(interaction=name), self.now)
            assert isinstance(opened, Permit)
            self.decider.budgets.settle(opened.reservation, TokenUse(0, 0), self.now)
            arrival = arrival._replace(interaction=name, token=opened.token)
        use = TokenUse(prompt + output, prompt + 2 * output)
        expected = self.model.outcome(caller, use, continues, self.now) if overloaded else None
        decision = self.decider.decide(arrival, self.now)
        if isinstance(decision, Rejected):
            assert decision.outcome is expected
            assert decision.retry_after > 0
            return
        assert isinstance(decision, Permit)
        assert expected is None
        assert decision.reservation.use == use
        accounts = self.model.reserve(caller, use, continues, self.now)
        within_caps = sum("protected" in name for name, _ in accounts) == 4
        assert decision.protected == (continues and within_caps)
        self.open.append((decision, accounts, self.now))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), prompt=AMOUNTS, output=AMOUNTS)
    def ends(self, data: st.DataObject, prompt: int, output: int) -> None:
        permit, accounts, at = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        used = self.decider.budgets.measured(prompt, output)
        self.decider.budgets.settle(permit.reservation, used, self.now)
        self.model.settle(accounts, at, permit.reservation.use, used, self.now)

    @precondition(lambda self: self.open)
    @rule()
    def is_withdrawn(self) -> None:
        permit, accounts, at = self.open.pop()
        self.decider.withdrawn(permit, self.now)
        self.model.settle(accounts, at, permit.reservation.use, TokenUse(0, 0), self.now)

    @invariant()
    def what_is_left_is_told(self) -> None:
        for user, app in itertools.product("uv", "ab"):
            client = f"t/{user}"
            status = self.decider.token_status(Caller("t", client, app), self.now)
            assert status is not None
            left = [
                limit - self.model.used(f"tokens of {name}", self.now)
                for name, limit in ((client, 100), (f"app {app}", 200), ("t", 250))
            ]
            assert status.remaining == max(0, min(left))
        self.decider.check_invariants()


TokenMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestTokenLimits = TokenMachine.TestCase


def decider(profiles: Profiles, throttle: str = "rpm") -> Decider:
    quota = LocalQuota()
    tokens = Budgets(profiles, BudgetAccounts(), WeightedTokens())
    return Decider(
        THROTTLES[throttle](profiles, quota, 60.0), Interactions("s", profiles), Expectations(profiles), tokens
    )


def tokens_only(*, kappa: int = 5, **limits: float) -> Profiles:
    rates = RateLimits(user_per_minute=MANY, app_per_minute=MANY, kappa=kappa, budgets=budgets_of(**limits))
    return Profiles(limits=rates, reference_tokens=10)


CALL = Arrival(Caller("t", "t/u", "a"), prompt_tokens=60, max_tokens=20)


def test_the_reason_names_limit_and_value_and_what_would_fit() -> None:
    d = decider(tokens_only(user_tokens_per_minute=100, app_tokens_per_minute=150, user_cost_per_minute=1000))
    assert isinstance(d.decide(CALL, 0.0), Permit)
    refused = d.decide(CALL, 0.0)
    assert isinstance(refused, Rejected)
    assert (refused.outcome, refused.limit) == (Outcome.THROTTLED_USER, 100)
    assert refused.message == (
        "user 't/u' is over user_tokens_per_minute=100: the call is expected to need 80 tokens, and 20 are left; "
        "retry in 60.9 s"
    )
    assert isinstance(d.decide(CALL, refused.retry_after), Permit)
    other = CALL._replace(caller=Caller("t", "t/v", "a"))
    refused = d.decide(other, refused.retry_after)
    assert isinstance(refused, Rejected)
    assert "app 'a' of tenant 't' is over app_tokens_per_minute=150: the call is expected to need 80" in refused.message
    refused = d.decide(other._replace(max_tokens=9999), 0.0)
    assert isinstance(refused, Rejected)
    assert refused.message.endswith("need 10059 tokens, which is more than all of it; ask for fewer tokens")
    cost = decider(tokens_only(user_cost_per_minute=99)).decide(CALL, 0.0)
    assert isinstance(cost, Rejected)
    assert "user_cost_per_minute=99: the call is expected to need 100 cost units" in cost.message


@pytest.mark.parametrize(("throttle", "window", "outcome"), [
    ("rpm", "hour", Outcome.REJECTED_INVALID), ("rpm", "minute", Outcome.REJECTED_INVALID),
    ("oit", "hour", Outcome.REJECTED_INVALID), ("oit", "minute", Outcome.THROTTLED_USER),
])  # fmt: skip
def test_a_call_that_no_waiting_helps_is_invalid_and_all_others_may_be_repeated(
    throttle: str, window: str, outcome: Outcome
) -> None:
    d = decider(tokens_only(**{f"user_tokens_per_{window}": 100}), throttle)
    call, refusals = CALL._replace(overloaded=True), []
    for prompt_tokens in (80, 81):
        refused = d.decide(call._replace(prompt_tokens=prompt_tokens), 0.0)
        refusals.append(refused.outcome if isinstance(refused, Rejected) else None)
    assert refusals == [None, outcome]
    refused = d.decide(call._replace(prompt_tokens=80), 0.0)
    assert isinstance(refused, Rejected)
    assert refused.outcome is Outcome.THROTTLED_USER, "it fits once the first has left"


def test_a_call_of_an_interaction_may_be_repeated_as_long_as_the_cap_on_such_calls_could_hold_it() -> None:
    d = decider(tokens_only(kappa=2, user_tokens_per_hour=100))
    first = d.decide(CALL._replace(interaction="i"), 0.0)
    assert isinstance(first, Permit)
    going_on = CALL._replace(interaction="i", token=first.token)
    assert isinstance(d.decide(going_on._replace(prompt_tokens=130), 1.0), Permit)
    for tokens, outcome in ((180, Outcome.THROTTLED_USER), (181, Outcome.REJECTED_INVALID)):
        refused = d.decide(going_on._replace(prompt_tokens=tokens), 2.0)
        assert isinstance(refused, Rejected)
        assert refused.outcome is outcome


@pytest.mark.parametrize(("throttle", "overloaded", "refuses"), [
    ("rpm", False, True), ("oit", False, False), ("oit", True, True), ("none", True, False),
])  # fmt: skip
def test_the_throttle_determines_when_limits_in_tokens_hold(throttle: str, overloaded: bool, refuses: bool) -> None:
    d = decider(tokens_only(user_tokens_per_minute=100), throttle)
    call = CALL._replace(overloaded=overloaded)
    assert isinstance(d.decide(call, 0.0), Permit)
    assert isinstance(d.decide(call, 0.0), Rejected) == refuses
    assert (d.token_status(CALL.caller, 0.0) is None) == (throttle == "none")


@pytest.mark.parametrize("step", [-7200.0, 7200.0])
def test_a_wall_clock_that_is_set_frees_no_reservation_and_keeps_none_longer(step: float) -> None:
    d = decider(tokens_only(user_tokens_per_minute=100))
    d.synchronize(1.7e9)
    permit = d.decide(CALL, 0.0)
    assert isinstance(permit, Permit)
    d.synchronize(1.7e9 + step)
    assert isinstance(d.decide(CALL, 1.0), Rejected), "20 of 100 tokens are left"
    d.budgets.settle(permit.reservation, TokenUse(10, 10), 2.0)
    left = [d.token_status(CALL.caller, now) for now in (2.0, 59.0, 61.0)]
    assert [status.remaining for status in left if status is not None] == [90, 90, 100]


def test_a_calendar_follows_a_wall_clock_that_is_set_and_keeps_what_is_booked() -> None:
    d = decider(tokens_only(user_tokens_per_calendar_day=100))
    d.synchronize(1.7e9)
    assert isinstance(d.decide(CALL, 0.0), Permit)
    d.synchronize(1.7e9 - 86_400)
    assert isinstance(d.decide(CALL._replace(prompt_tokens=1), 1.0), Rejected), "80 of 100 are used, also yesterday"
    d.check_invariants()
    d.synchronize(1.7e9 + 86_400)
    assert isinstance(d.decide(CALL, 2.0), Permit), "a new day"
    d.check_invariants()


def test_a_tenant_of_20_users_gets_no_more_tokens_than_its_limit() -> None:
    d = decider(tokens_only(user_tokens_per_minute=100, tenant_tokens_per_minute=200, tenant_cost_per_minute=1000))
    decisions = [d.decide(CALL._replace(caller=Caller("t", f"t/{number}", "a")), 0.0) for number in range(20)]
    assert sum(isinstance(decision, Permit) for decision in decisions) == 2
    refused = decisions[2]
    assert isinstance(refused, Rejected)
    assert (refused.outcome, refused.limit) == (Outcome.THROTTLED_TENANT, 200)
    assert "tenant 't' is over tenant_tokens_per_minute=200: the call is expected to need 80 tokens" in refused.message
    status = d.token_status(Caller("t", "t/new", "a"), 0.0)
    assert status is not None
    assert status[:2] == (200, 40), "less than the new user's own limit"
    assert isinstance(d.decide(CALL._replace(caller=Caller("s", "s/u", "a")), 0.0), Permit)
    cost = decider(tokens_only(tenant_cost_per_minute=99)).decide(CALL, 0.0)
    assert isinstance(cost, Rejected)
    assert "tenant 't' is over tenant_cost_per_minute=99: the call is expected to need 100 cost" in cost.message


def test_a_call_that_is_refused_for_its_tokens_counts_as_a_call() -> None:
    d = decider(Profiles(limits=RateLimits(user_per_minute=2, budgets=budgets_of(user_tokens_per_minute=100))), "oit")
    call = CALL._replace(overloaded=True)
    assert isinstance(d.decide(call, 0.0), Permit)
    assert isinstance(d.decide(call, 0.0), Rejected)
    small = d.decide(call._replace(prompt_tokens=1, max_tokens=1), 0.0)
    assert isinstance(small, Rejected)
    assert "user_per_minute=2" in small.message


def test_an_account_follows_a_limit_that_changes() -> None:
    accounts = BudgetAccounts()
    accounts.book(ACCOUNT, 50, 0.0)
    assert accounts.exhausted(0.0) == {}
    accounts.book(ACCOUNT._replace(limit=60), 10, 0.0)
    assert accounts.exhausted(1.0) == {QuotaAccount("a", 60): 64.0}
    assert accounts.exhausted(65.0) == {}


def test_a_call_reserves_the_tokens_that_it_is_expected_to_need() -> None:
    app = AppProfile(
        per_minute=9, max_calls=9, expected=Expectation(input=30, system=10, output=5), stages={1: Expectation(input=7)}
    )
    limit = RateLimits(budgets=budgets_of(user_cost_per_minute=1))
    profiles = Profiles(limits=limit, apps={"known": app}, reference_tokens=50)
    limits = Budgets(profiles, BudgetAccounts(), WeightedTokens())
    assert limits.expected("known", 0, 0, 0)[:2] == (45, 50)
    assert limits.expected("known", 0, 100, 1000)[:2] == (105, 110), "the app's output, not the most that it may be"
    assert limits.expected("known", 0, 100, 3)[:2] == (103, 106), "never more than the caller asks for"
    assert limits.expected("known", 1, 0, 20)[:2] == (27, 47), "a stage without an expected output"
    assert limits.expected("unknown", 0, 100, 20)[:2] == (120, 140)
    assert limits.expected("unknown", 0, 0, 0)[:2] == (50, 50)


def test_the_stage_of_an_interaction_determines_what_is_expected() -> None:
    stages = {0: Expectation(input=100), 1: Expectation(input=7), 2: Expectation(input=30)}
    app = AppProfile(per_minute=MANY, max_calls=9, budgets=budgets_of(app_tokens_per_minute=1000), stages=stages)
    d = decider(Profiles(limits=RateLimits(budgets=budgets_of(user_tokens_per_minute=1000)), apps={"a": app}))
    arrival, reserved = Arrival(Caller("t", "t/u", "a"), "journey"), []
    for _ in range(3):
        permit = d.decide(arrival, 0.0)
        assert isinstance(permit, Permit)
        reserved.append(permit.reservation.use.tokens)
        arrival = arrival._replace(token=permit.token)
        d.ended(permit, None, 0.0)
    assert reserved == [100, 7, 30]
    elsewhere = decider(Profiles(apps={"a": app})).decide(arrival, 0.0)
    assert isinstance(elsewhere, Permit)
    assert elsewhere.stage == 3
    named = d.decide(Arrival(Caller("t", "t/u", "a"), stage=1), 0.0)
    assert isinstance(named, Permit)
    assert named.reservation.use.tokens == 7


def test_a_limit_that_is_taken_away_or_given_later_settles_what_was_booked() -> None:
    d = decider(tokens_only(user_tokens_per_minute=100))
    permit = d.decide(CALL, 0.0)
    assert isinstance(permit, Permit)
    d.configure(tokens_only())
    assert d.token_status(CALL.caller, 0.0) is None
    unlimited = d.decide(CALL, 0.0)
    assert isinstance(unlimited, Permit)
    d.configure(tokens_only(user_tokens_per_minute=100))
    d.budgets.settle(permit.reservation, TokenUse(10, 10), 0.0)
    d.budgets.settle(unlimited.reservation, TokenUse(50, 50), 0.0)
    status = d.token_status(CALL.caller, 0.0)
    assert isinstance(status, LimitStatus)
    assert status.remaining == 90


def test_calls_beyond_a_users_limit_do_not_count_towards_the_app() -> None:
    d = decider(tokens_only(user_tokens_per_minute=80, app_tokens_per_minute=150), "oit")
    assert isinstance(d.decide(CALL, 0.0), Permit), "as much as the limit counts"
    assert isinstance(d.decide(CALL, 0.0), Permit), "nothing is overloaded"
    other = CALL._replace(caller=Caller("t", "t/v", "a"), overloaded=True)
    assert isinstance(d.decide(other._replace(max_tokens=11), 0.0), Rejected), "80 + 71"
    assert isinstance(d.decide(other._replace(max_tokens=10), 0.0), Permit), "80 + 70"


def test_a_call_as_large_as_its_limit_is_told_to_come_back() -> None:
    d = decider(tokens_only(user_tokens_per_minute=80))
    assert isinstance(d.decide(CALL, 0.0), Permit)
    refused = d.decide(CALL, 0.0)
    assert isinstance(refused, Rejected)
    assert refused.message.endswith("and 0 are left; retry in 60.9 s")


def test_a_call_that_used_what_it_reserved_is_not_booked_again() -> None:
    d = decider(tokens_only(user_tokens_per_minute=100))
    permit = d.decide(CALL, 0.0)
    assert isinstance(permit, Permit)
    before = d.token_status(CALL.caller, 30.0)
    d.budgets.settle(permit.reservation, permit.reservation.use, 30.0)
    assert d.token_status(CALL.caller, 30.0) == before


@pytest.mark.parametrize(("measure", "limit"), [("tokens", 70), ("cost", 90)])
def test_the_limit_of_one_app_holds_without_any_other(measure: str, limit: int) -> None:
    rates = RateLimits(user_per_minute=MANY, app_per_minute=MANY)
    app = AppProfile(per_minute=MANY, max_calls=MANY, budgets=budgets_of(**{f"app_{measure}_per_minute": limit}))
    d = decider(Profiles(limits=rates, apps={"a": app}, reference_tokens=10))
    assert isinstance(d.decide(CALL, 0.0), Rejected)
    assert isinstance(d.decide(CALL._replace(max_tokens=1), 0.0), Permit)


def test_a_protected_call_is_within_the_caps_of_all_measures() -> None:
    profiles = tokens_only(kappa=1, user_tokens_per_minute=1000, user_cost_per_minute=50)
    limits = Budgets(profiles, BudgetAccounts(), WeightedTokens())
    assert limits.refusal(CALL.caller, TokenUse(80, 50), True, 0.0) is None
    assert isinstance(limits.refusal(CALL.caller, TokenUse(80, 51), True, 0.0), Rejected)


def test_a_calls_cost_is_that_of_the_cost_function() -> None:
    """2.1 * 10 + 11.46 for the prompt, and 100 + 0.04 * 10 * 100 + 0.032 * 100^2 for the output, rounded up."""
    assert Budgets(PROFILES, BudgetAccounts(), Profiled()).measured(10, 100) == TokenUse(110, 493)
    assert Budgets(PROFILES, BudgetAccounts(), Normalized()).measured(10, 5) == TokenUse(15, 15)
    assert Budgets(PROFILES, BudgetAccounts(), Normalized()).measured(10, 5, 4) == TokenUse(15, 19)
