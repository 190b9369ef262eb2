"""The interface of throttles: the caller and its limits, the decision, and the methods.

A caller's limits, in calls or in another measure, are its user's, its app's and its tenant's, in this order everywhere.
What is beyond one of them does not count towards the following ones: a user who calls too often does not use up the
limit of the app, nor an app that of its tenant.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter
from typing import NamedTuple, Protocol

from fairlead.outcomes import Outcome
from serving.names import tenant_of
from throttler.core.profiles import Profiles
from throttler.core.windows import LimitStatus, QuotaAccount, Window

WINDOW_SECONDS = 60.0
MOST_CALLERS = 10_000  # whose limits are remembered


class Caller(NamedTuple):
    """The tenant, client and app of a call. `client` is the tenant or tenant/user; no `tenant` contains a '/'.

    `app` is empty while it is not known; then no limit of an app applies. `key` names the API key, if it is known.
    """

    tenant: str
    client: str
    app: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The decision that the call is admitted.

    `protected` means that it continues an interaction, and its client is within the cap on protected calls.
    """

    protected: bool


@dataclass(frozen=True, slots=True)
class Rejected:
    """The decision that the call is refused by the check `outcome`; `message` names the limit and its value."""

    outcome: Outcome
    retry_after: float  # seconds, > 0
    message: str
    limit: int  # the value of the limit that refuses the call


def tightest(statuses: Iterable[LimitStatus]) -> LimitStatus | None:
    """Return the status of the limit of which least remains, the first of several; None if there is no limit."""
    return min(statuses, key=attrgetter("remaining"), default=None)


# A QuotaAccount means that the call is neither decided nor counted yet. This limit would refuse it, but the other
# gateways may give more of the limit; after the request to them, `admit` is called again.
Decision = Admitted | Rejected | QuotaAccount


class ThrottleRule(Protocol):
    """A rule that decides once about each arriving call; `now` is in seconds and never decreases."""

    @property
    def window(self) -> Window:
        """The window that counts the arrivals."""

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        """Decide about a call, and count its arrival.

        `protected` means that the call continues an interaction in progress; `overloaded` that its model's pool is
        overloaded.
        """

    def enforces(self, overloaded: bool) -> bool:
        """Return whether limits refuse calls now; budgets of a minute or less follow this rule too."""

    @property
    def protects(self) -> bool:
        """Whether calls of interactions in progress go on beyond limits that are enforced."""

    def accounts(self, caller: Caller) -> Sequence[QuotaAccount]:
        """Return the accounts in which the caller's calls count, the user's first; none where nothing limits them."""

    def refused(self, client: str, now: float) -> None:
        """Count the arrival of a call that was refused before `admit`; it counts only towards its user's limit."""

    def configure(self, profiles: Profiles) -> None:
        """Apply new limits from now on; counted arrivals stay counted."""

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""


class CallerLimit(NamedTuple):
    """A limit of a caller: the outcome of a call that it refuses, and the account that counts towards it."""

    outcome: Outcome
    account: QuotaAccount

    def excess(self, caller: Caller) -> str:
        """Return whose limit is exceeded, its name and its value, as in "user 'ann' is over user_per_minute=60"."""
        who, name = {
            Outcome.THROTTLED_USER: (f"user {caller.client!r}", "user"),
            Outcome.THROTTLED_APP: (f"app {caller.app!r} of tenant {caller.tenant!r}", "app"),
            Outcome.THROTTLED_TENANT: (f"tenant {caller.tenant!r}", "tenant"),
        }[self.outcome]
        return f"{who} is over {name}_per_minute={self.account.limit}"


def limits_of(caller: Caller, user: int | None, app: int | None, tenant: int | None) -> list[CallerLimit]:
    """Return the limits of `caller` that are not None."""
    limits = []
    if user is not None:
        limits.append(CallerLimit(Outcome.THROTTLED_USER, QuotaAccount(f"user:{caller.client}", user)))
    if app is not None and caller.app:
        limits.append(CallerLimit(Outcome.THROTTLED_APP, QuotaAccount(f"app:{caller.tenant}/{caller.app}", app)))
    if tenant is not None:
        limits.append(CallerLimit(Outcome.THROTTLED_TENANT, QuotaAccount(f"tenant:{caller.tenant}", tenant)))
    return limits


def call_limits(profiles: Profiles, caller: Caller) -> list[CallerLimit]:
    limits = profiles.limits
    return limits_of(caller, limits.user_per_minute, profiles.app(caller.app).per_minute, limits.tenant_per_minute)


def call_caps(profiles: Profiles, caller: Caller) -> list[QuotaAccount]:
    """Return the caps on protected calls of client and tenant: `kappa` times the limits that are not None."""
    limits, caps = profiles.limits, []
    if (user := limits.user_per_minute) is not None:
        caps.append(QuotaAccount(f"protected:{caller.client}", limits.kappa * user))
    if (tenant := limits.tenant_per_minute) is not None:
        caps.append(QuotaAccount(f"protected-tenant:{caller.tenant}", limits.kappa * tenant))
    return caps


def user_account(profiles: Profiles, client: str) -> QuotaAccount:
    caller = Caller(tenant_of(client), client, "")
    [limit] = limits_of(caller, profiles.limits.user_per_minute, None, None)
    return limit.account


class LimitedCalls:
    """The part of a ThrottleRule that counts calls towards the limits of their callers, in `window`."""

    def __init__(self, profiles: Profiles, window: Window) -> None:
        self.window = window
        self.configure(profiles)

    def accounts(self, caller: Caller) -> Sequence[QuotaAccount]:
        return [*map(attrgetter("account"), self._limits(caller))]

    def refused(self, client: str, now: float) -> None:
        self.window.arrived(user_account(self._profiles, client), now)

    def configure(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self._limits = lru_cache(MOST_CALLERS)(partial(call_limits, profiles))

    def check_invariants(self) -> None:
        self.window.check_invariants()
