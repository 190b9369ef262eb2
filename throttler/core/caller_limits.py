"""The limits under which a caller's calls fall, in calls or in another measure: its user's, app's and tenant's.

They are in this order everywhere. What is beyond one of them does not count towards the following ones: a user who
calls too often does not use up the limit of the app, nor an app that of its tenant.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.outcomes import Outcome
from serving.names import tenant_of
from throttler.core.profiles import Profiles
from throttler.core.quota import QuotaAccount
from throttler.core.throttle import Caller
from throttler.core.windows import Window


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
        self._profiles = profiles

    def accounts(self, caller: Caller) -> Sequence[QuotaAccount]:
        return [limit.account for limit in call_limits(self._profiles, caller)]

    def refused(self, client: str, now: float) -> None:
        self.window.arrived(user_account(self._profiles, client), now)

    def configure(self, profiles: Profiles) -> None:
        self._profiles = profiles

    def check_invariants(self) -> None:
        self.window.check_invariants()
