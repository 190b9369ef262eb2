"""Overload and interaction-driven throttling: FairServe section 4.2, Alg. 1 lines 11-25.

The paper leaves three points open. The limit of an app is counted separately for each tenant, so that no tenant uses up
another's part. An arrival beyond its user's limit does not count towards the app, so that one abuser cannot throttle
the app's other users of the same tenant. Interactions protect at most kappa * T_user calls per client and window, so
that endless, replayed or shared interactions gain nothing beyond that. The paper has no tenants: where a limit T_tenant
is set, it holds for all calls of a tenant's users and apps together, and kappa * T_tenant for its protected calls.
"""

from collections.abc import Sequence

from throttler.core.profiles import Profiles
from throttler.core.throttle import (
    WINDOW_SECONDS,
    Admitted,
    Caller,
    CallerLimit,
    Decision,
    LimitedCalls,
    Rejected,
    call_caps,
)
from throttler.core.windows import Quota, QuotaAccount, SlidingWindow, growable


class Oit(LimitedCalls):
    """A throttle that refuses calls only while the pool is overloaded, and never a protected call. See ThrottleRule."""

    protects = True

    def __init__(self, profiles: Profiles, quota: Quota, seconds: float = WINDOW_SECONDS) -> None:
        super().__init__(profiles, SlidingWindow(seconds, quota))

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        limits = self._limits(caller)
        caps = call_caps(self._profiles, caller) if protected else []
        if overloaded and (lacking := self._lacking(limits, caps, now)):
            return lacking
        protected = protected and not any(self.window.arrived(cap, now) for cap in caps)
        goes_on = protected or not overloaded
        for limit in limits:
            account = limit.account
            is_within_limit = self.window.used(account.key, now) < account.limit
            wait = self.window.arrived(account, now)
            if wait and not goes_on:
                message = f"overloaded, and {limit.excess(caller)}; retry in {wait:.1f} s"
                return Rejected(limit.outcome, wait, message, account.limit)
            # A call that goes on though this gateway holds too little of a limit counts towards the next one as well.
            if not is_within_limit:
                break
        return Admitted(protected)

    def enforces(self, overloaded: bool) -> bool:
        return overloaded

    def _lacking(self, limits: Sequence[CallerLimit], caps: Sequence[QuotaAccount], now: float) -> QuotaAccount | None:
        """Return the account whose limit would refuse the call now, if more of the limit can be requested.

        `caps` are those on protected calls, none for a call that is not protected.
        """
        if caps and all(self.window.fits(cap, now) for cap in caps):
            return None
        return growable(self.window, caps, now) or growable(self.window, [limit.account for limit in limits], now)
