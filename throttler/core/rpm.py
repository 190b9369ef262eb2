"""A limit on calls per minute: the baseline that FairServe section 3 argues against.

It uses fixed windows, is always enforced, and ignores load and interactions. As under OIT, a refused call counts only
towards its user's limit.
"""

from fairlead.outcomes import Outcome
from throttler.core.profiles import Profiles
from throttler.core.quota import Quota, QuotaAccount
from throttler.core.throttle import WINDOW_SECONDS, Admitted, Caller, Decision, Rejected
from throttler.core.windows import FixedWindow


class Rpm:
    """A throttle that limits the calls of each user and of each app in every minute of the clock."""

    protects = False

    def __init__(self, profiles: Profiles, quota: Quota, seconds: float = WINDOW_SECONDS) -> None:
        self.window = FixedWindow(seconds, quota)
        self._profiles = profiles

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        """See Throttle; `overloaded` and `protected` change nothing."""
        user, app = accounts = self._accounts(caller)
        for account in accounts:
            if not self.window.fits(account, now):
                if self.window.may_grow(account, now):
                    return account
                break
        if wait := self.window.arrived(user, now):
            message = f"user {caller.client!r} is over user_per_minute={user.limit}; retry in {wait:.1f} s"
            return Rejected(Outcome.THROTTLED_USER, wait, message, user.limit)
        if wait := self.window.arrived(app, now):
            what = f"app {caller.app!r} of tenant {caller.tenant!r}"
            message = f"{what} is over app_per_minute={app.limit}; retry in {wait:.1f} s"
            return Rejected(Outcome.THROTTLED_APP, wait, message, app.limit)
        return Admitted(protected)

    def enforces(self, overloaded: bool) -> bool:
        """See Throttle."""
        return True

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

    def _accounts(self, caller: Caller) -> tuple[QuotaAccount, QuotaAccount]:
        app = QuotaAccount(f"app:{caller.tenant}/{caller.app}", self._profiles.app(caller.app).per_minute)
        return self.user_account(caller.client), app
