"""Overload and interaction-driven throttling: FairServe section 4.2, Alg. 1 lines 11-25.

The paper leaves three points open. The limit of an app is counted separately for each tenant, so that no tenant uses up
another's part. An arrival beyond its user's limit does not count towards the app, so that one abuser cannot throttle
the app's other users of the same tenant. Interactions protect at most kappa * T_user calls per client and window, so
that endless, replayed or shared interactions gain nothing beyond that.
"""

from fairlead.outcomes import Outcome
from throttler.core.profiles import Profiles
from throttler.core.quota import Quota, QuotaAccount
from throttler.core.throttle import WINDOW_SECONDS, Admitted, Caller, Decision, Rejected
from throttler.core.windows import SlidingWindow


class Oit:
    """A throttle that refuses calls only while the pool is overloaded, and never a protected call."""

    protects = True

    def __init__(self, profiles: Profiles, quota: Quota, seconds: float = WINDOW_SECONDS) -> None:
        self.window = SlidingWindow(seconds, quota)
        self._profiles = profiles

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        """See Throttle."""
        user, app = limits = self.user_account(caller.client), self._app(caller)
        if overloaded and (lacking := self._lacking(caller, limits, protected, now)):
            return lacking
        within_limit = self.window.used(user.key, now) < user.limit
        user_wait = self.window.arrived(user, now)
        if protected:
            protected = not self.window.arrived(self._protected(caller.client), now)
        goes_on = protected or not overloaded
        # A call that goes on though this gateway holds too little of its user's limit is one of the app's all the same.
        is_counted = within_limit if goes_on else not user_wait
        app_wait = self.window.arrived(app, now) if is_counted else 0.0
        if goes_on:
            return Admitted(protected)
        if user_wait:
            what = f"user {caller.client!r} is over user_per_minute={user.limit}"
            return _rejected(Outcome.THROTTLED_USER, what, user_wait, user.limit)
        if app_wait:
            what = f"app {caller.app!r} of tenant {caller.tenant!r} is over app_per_minute={app.limit}"
            return _rejected(Outcome.THROTTLED_APP, what, app_wait, app.limit)
        return Admitted(protected)

    def enforces(self, overloaded: bool) -> bool:
        """See Throttle."""
        return overloaded

    def user_account(self, client: str) -> QuotaAccount:
        """See Throttle."""
        return QuotaAccount("user:" + client, self._profiles.limits.user_per_minute)

    def refused(self, client: str, now: float) -> None:
        """See Throttle."""
        self.window.arrived(self.user_account(client), now)

    def configure(self, profiles: Profiles) -> None:
        """See Throttle."""
        self._profiles = profiles

    def check_invariants(self) -> None:
        """See Throttle."""
        self.window.check_invariants()

    def _lacking(
        self, caller: Caller, limits: tuple[QuotaAccount, QuotaAccount], protected: bool, now: float
    ) -> QuotaAccount | None:
        """Return the account whose limit would refuse the call now, if more of the limit can be requested."""
        if protected:
            cap = self._protected(caller.client)
            if self.window.fits(cap, now):
                return None
            if self.window.may_grow(cap, now):
                return cap
        for account in limits:
            if not self.window.fits(account, now):
                return account if self.window.may_grow(account, now) else None
        return None

    def _app(self, caller: Caller) -> QuotaAccount:
        return QuotaAccount(f"app:{caller.tenant}/{caller.app}", self._profiles.app(caller.app).per_minute)

    def _protected(self, client: str) -> QuotaAccount:
        return QuotaAccount("protected:" + client, self._profiles.limits.protected_per_minute)


def _rejected(outcome: Outcome, what: str, wait: float, limit: int) -> Rejected:
    return Rejected(outcome, wait, f"overloaded, and {what}; retry in {wait:.1f} s", limit)
