"""One conformance suite over all throttles, and each against a naive model that keeps every arrival."""

from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.outcomes import Outcome
from throttler.core.leased_quota import LeasedQuota, LeaseReply
from throttler.core.oit import Oit
from throttler.core.profiles import AppProfile, Profiles, RateLimits
from throttler.core.throttle import WINDOW_SECONDS, Admitted, Caller, Decision, Rejected, ThrottleRule
from throttler.core.throttles import THROTTLES, Rpm
from throttler.core.windows import LocalQuota, QuotaAccount

LIMITS = RateLimits(user_per_minute=3, app_per_minute=5, tenant_per_minute=7, kappa=2)
PROFILES = Profiles(limits=LIMITS)
Name = TypeVar("Name")
Call = tuple[Caller, bool, bool, int]  # protected, overloaded, seconds since the last


def caller(user: str, app: str = "x", tenant: str = "t") -> Caller:
    return Caller(tenant, f"{tenant}/{user}", app)


CALLER = st.builds(caller, st.sampled_from("uvw"), st.sampled_from("xy"), st.sampled_from("ts"))
CALL = st.tuples(CALLER, st.booleans(), st.booleans(), st.sampled_from((0, 0, 1, 5, 40)))
CALLS = st.lists(CALL, max_size=80)


@dataclass
class NaiveOit:
    """FairServe Alg. 1, lines 19-25, by counting lists."""

    users: list[tuple[str, int]] = field(default_factory=list)
    apps: list[tuple[tuple[str, str], int]] = field(default_factory=list)
    tenants: list[tuple[str, int]] = field(default_factory=list)
    protected: list[tuple[str, int]] = field(default_factory=list)
    of_tenants: list[tuple[str, int]] = field(default_factory=list)  # protected calls
    of_app: int = 5  # the limit of an app
    of_tenant: int = 7  # the limit of a tenant

    def refused(self, client: str, now: int) -> None:
        self.users.append((client, now))

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: int) -> Outcome | bool:
        def count(arrivals: list[tuple[Name, int]], key: Name) -> int:
            arrivals.append((key, now))
            return sum(name == key and when > now - 60 for name, when in arrivals)

        user_over = count(self.users, caller.client) > 3
        app_over = not user_over and count(self.apps, (caller.tenant, caller.app)) > self.of_app
        is_counted = not (user_over or app_over)
        tenant_over = is_counted and count(self.tenants, caller.tenant) > self.of_tenant
        protected = protected and count(self.protected, caller.client) <= 6
        protected = protected and count(self.of_tenants, caller.tenant) <= 2 * self.of_tenant
        if protected or not overloaded:
            return protected
        if user_over:
            return Outcome.THROTTLED_USER
        if app_over:
            return Outcome.THROTTLED_APP
        return Outcome.THROTTLED_TENANT if tenant_over else False


@dataclass
class NaiveRpm:
    """The same limits in each minute of the clock."""

    users: list[tuple[str, int]] = field(default_factory=list)
    apps: list[tuple[str, str, int]] = field(default_factory=list)
    tenants: list[tuple[str, int]] = field(default_factory=list)

    def refused(self, client: str, now: int) -> None:
        self.users.append((client, now // 60))

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: int) -> Outcome | bool:
        user, app = (caller.client, now // 60), (caller.tenant, caller.app, now // 60)
        self.users.append(user)
        if self.users.count(user) > 3:
            return Outcome.THROTTLED_USER
        self.apps.append(app)
        if self.apps.count(app) > 5:
            return Outcome.THROTTLED_APP
        self.tenants.append((caller.tenant, now // 60))
        return Outcome.THROTTLED_TENANT if self.tenants.count(self.tenants[-1]) > 7 else protected


def summary(decision: Decision) -> Outcome | bool:
    if isinstance(decision, Admitted):
        return decision.protected
    assert isinstance(decision, Rejected)
    return decision.outcome


@given(st.lists(st.tuples(CALL, st.booleans()), max_size=80))
def test_oit_and_rpm_agree_with_their_models(calls: list[tuple[Call, bool]]) -> None:
    pairs: list[tuple[ThrottleRule, NaiveOit | NaiveRpm]] = [
        (Oit(PROFILES, LocalQuota()), NaiveOit()),
        (Rpm(PROFILES, LocalQuota()), NaiveRpm()),
    ]
    now = 0
    for (caller, protected, overloaded, pause), is_valid in calls:
        now += pause
        for throttle, model in pairs:
            if not is_valid:
                throttle.refused(caller.client, float(now))
                model.refused(caller.client, now)
                continue
            decision = throttle.admit(caller, protected, overloaded, float(now))
            throttle.check_invariants()
            assert summary(decision) == model.admit(caller, protected, overloaded, now)


def made(name: str) -> ThrottleRule:
    return THROTTLES[name](PROFILES, LocalQuota(), WINDOW_SECONDS)


@pytest.mark.parametrize("name", sorted(THROTTLES))
@given(calls=CALLS)
def test_conformance(name: str, calls: list[Call]) -> None:
    throttle, again, now = made(name), made(name), 0.0
    for number, (caller, protected, overloaded, pause) in enumerate(calls):
        now += pause
        decision = throttle.admit(caller, protected, overloaded, now)
        assert decision == again.admit(caller, protected, overloaded, now)
        throttle.check_invariants()
        if number < min(LIMITS.user_per_minute, LIMITS.app_per_minute):
            assert isinstance(decision, Admitted)
        if isinstance(decision, Admitted):
            assert protected or not decision.protected
            continue
        assert isinstance(decision, Rejected)
        assert 0 < decision.retry_after <= 60
        who, limit = {
            Outcome.THROTTLED_USER: (f"user {caller.client!r} ", "user_per_minute=3"),
            Outcome.THROTTLED_APP: (f"app {caller.app!r} of tenant {caller.tenant!r} ", "app_per_minute=5"),
            Outcome.THROTTLED_TENANT: (f"tenant {caller.tenant!r} ", "tenant_per_minute=7"),
        }[decision.outcome]
        assert who in decision.message
        assert f"is over {limit};" in decision.message


@given(CALLS)
def test_oit_never_refuses_without_overload_and_none_never_refuses(calls: list[Call]) -> None:
    now = 0.0
    oit, none = Oit(PROFILES, LocalQuota()), made("none")
    for caller, protected, overloaded, pause in calls:
        now += pause
        assert isinstance(oit.admit(caller, protected, False, now), Admitted)
        assert isinstance(none.admit(caller, protected, overloaded, now), Admitted)


@pytest.mark.parametrize("name", sorted(THROTTLES))
@given(calls=CALLS)
def test_a_tenant_is_served_as_if_there_were_no_other(name: str, calls: list[Call]) -> None:
    together, alone, now = made(name), made(name), 0.0
    for caller, protected, overloaded, pause in calls:
        now += pause
        decision = together.admit(caller, protected, overloaded, now)
        if caller.tenant == "t":
            assert decision == alone.admit(caller, protected, overloaded, now)


def test_an_abuser_does_not_throttle_the_apps_other_users() -> None:
    oit = Oit(PROFILES, LocalQuota())
    refused = [isinstance(oit.admit(caller("abuser"), False, True, 0.0), Rejected) for _ in range(100)]
    assert refused == [False] * 3 + [True] * 97
    assert isinstance(oit.admit(caller("honest"), False, True, 1.0), Admitted)


def test_calls_within_their_users_limit_count_towards_the_app_also_without_overload() -> None:
    oit = Oit(PROFILES, LocalQuota())
    for _ in range(10):
        oit.admit(caller("u"), False, False, 0.0)
    admitted = [isinstance(oit.admit(caller("v"), False, True, 1.0), Admitted) for _ in range(3)]
    assert admitted == [True, True, False], "three calls of u count towards the limit of five"


@pytest.mark.parametrize(("overloaded", "counted"), [(False, 3), (True, 1)])
def test_a_call_counts_towards_its_app_if_it_goes_on_within_the_whole_limit_of_its_user(
    overloaded: bool, counted: int
) -> None:
    """Of the three calls per minute of a user this gateway may admit one by itself."""
    oit = Oit(PROFILES, LeasedQuota(WINDOW_SECONDS, gateways=3))
    for _ in range(4):
        oit.admit(caller("u"), False, overloaded, 0.0)
    assert oit.window.used("app:t/x", 0.0) == counted


@pytest.mark.parametrize("kind", [Oit, Rpm])
def test_a_call_beyond_its_users_limit_requests_no_more_of_its_apps(kind: type[Oit] | type[Rpm]) -> None:
    quota = LeasedQuota(WINDOW_SECONDS)
    quota.restore(-1000.0)  # may use one call of the app's limit without a request, and none of the user's
    throttle = kind(Profiles(limits=RateLimits(user_per_minute=1, app_per_minute=2)), quota)
    lacking = throttle.admit(caller("u"), False, True, 0.0)
    assert lacking == QuotaAccount("user:t/u", 1)
    quota.answered(quota.ask(lacking, 0, 1, 0.0), LeaseReply(1, recalled=False), 0.0, 0.0)
    assert isinstance(throttle.admit(caller("u"), False, True, 0.0), Admitted)
    assert isinstance(throttle.admit(caller("u"), False, True, 0.0), Rejected)


@pytest.mark.parametrize("kind", [Oit, Rpm])
def test_calls_that_were_refused_before_count_and_new_limits_apply(kind: type[Oit] | type[Rpm]) -> None:
    throttle = kind(PROFILES, LocalQuota())
    for _ in range(3):
        throttle.refused("t/u", 0.0)
    assert summary(throttle.admit(caller("u"), False, True, 1.0)) is Outcome.THROTTLED_USER
    throttle.configure(Profiles(limits=RateLimits(user_per_minute=1)))
    outcomes = [summary(throttle.admit(caller("v"), False, True, 1.0)) for _ in range(2)]
    assert outcomes == [False, Outcome.THROTTLED_USER]


TENANT = Profiles(limits=RateLimits(user_per_minute=3, app_per_minute=100, tenant_per_minute=4, kappa=2))


@pytest.mark.parametrize("kind", [Oit, Rpm])
def test_a_tenant_of_20_users_gets_no_more_than_its_limit(kind: type[Oit] | type[Rpm]) -> None:
    throttle = kind(TENANT, LocalQuota())
    many = [throttle.admit(caller(f"u{n % 20}"), False, True, 0.0) for n in range(60)]
    assert sum(isinstance(decision, Admitted) for decision in many) == 4
    last = many[19]
    assert isinstance(last, Rejected)
    assert (last.outcome, last.limit, last.retry_after) == (Outcome.THROTTLED_TENANT, 4, 60.0)
    assert "tenant 't' is over tenant_per_minute=4; retry in 60.0 s" in last.message
    assert isinstance(throttle.admit(caller("u", tenant="s"), False, True, 0.0), Admitted)


def test_calls_beyond_a_users_or_an_apps_limit_do_not_count_towards_the_tenant() -> None:
    limits = RateLimits(user_per_minute=3, app_per_minute=4, tenant_per_minute=6)
    for throttle in (Oit(Profiles(limits=limits), LocalQuota()), Rpm(Profiles(limits=limits), LocalQuota())):
        for user in ("abuser", "other"):
            for _ in range(10):
                throttle.admit(caller(user), False, True, 0.0)
        assert throttle.window.used("tenant:t", 0.0) == 4
        admitted = [isinstance(throttle.admit(caller("honest", "y"), False, True, 1.0), Admitted) for _ in range(3)]
        assert admitted == [True, True, False]


def test_protection_of_20_users_is_capped_for_their_tenant() -> None:
    oit = Oit(TENANT, LocalQuota())
    decisions = [oit.admit(caller(f"u{n % 20}"), True, True, 0.0) for n in range(60)]
    assert [summary(decision) for decision in decisions[:8]] == [True] * 8
    assert sum(isinstance(decision, Admitted) for decision in decisions) == 8, "kappa times the tenant's limit"
    assert summary(decisions[8]) is Outcome.THROTTLED_TENANT
    assert isinstance(oit.admit(caller("u", tenant="s"), True, True, 0.0), Admitted)


def test_calls_count_in_the_accounts_of_their_user_app_and_tenant() -> None:
    accounts = [QuotaAccount("user:t/u", 3), QuotaAccount("app:t/x", 100), QuotaAccount("tenant:t", 4)]
    oit = Oit(TENANT, LocalQuota())
    assert oit.accounts(caller("u")) == accounts
    assert oit.accounts(caller("u", app="")) == [accounts[0], accounts[2]], "the app is not known"


def test_protection_is_capped_per_client_and_window() -> None:
    oit = Oit(PROFILES, LocalQuota())
    admitted = [isinstance(oit.admit(caller("u"), True, True, 0.0), Admitted) for _ in range(20)]
    assert admitted == [True] * 6 + [False] * 14
    assert isinstance(oit.admit(caller("u"), True, True, 60.0), Admitted)


@pytest.mark.parametrize(
    "name", ["user_per_minute", "app_per_minute", "tenant_per_minute", "max_calls", "idle_ttl", "max_age", "kappa"]
)
def test_limits_must_be_positive(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        RateLimits(**{name: 0})  # type: ignore[arg-type]


def test_an_app_may_have_a_limit_of_its_own_which_may_change() -> None:
    app = AppProfile(per_minute=2, max_calls=1)
    oit = Oit(Profiles(limits=LIMITS, apps={"x": app}), LocalQuota())
    decisions = [oit.admit(caller(user), False, True, 0.0) for user in "abc"]
    assert [isinstance(decision, Admitted) for decision in decisions] == [True, True, False]
    assert "app_per_minute=2" in decisions[2].message  # type: ignore[union-attr]
    oit.configure(Profiles(limits=LIMITS, apps={"x": AppProfile(per_minute=4, max_calls=1)}))
    oit.check_invariants()
    decisions = [oit.admit(caller(user), False, True, 0.0) for user in "def"]
    assert [isinstance(decision, Admitted) for decision in decisions] == [True, True, False], "2 of 3 were remembered"


@pytest.mark.parametrize(
    ("name", "idle", "overloaded"), [("oit", False, True), ("rpm", True, True), ("none", False, False)]
)
def test_a_throttle_says_when_limits_are_enforced(name: str, idle: bool, overloaded: bool) -> None:
    assert [made(name).enforces(overloaded=each) for each in (False, True)] == [idle, overloaded]
