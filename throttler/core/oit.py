"""Overload and interaction-driven throttling: FairServe section 4.2, Alg. 1 lines 11-25.

Where the paper is silent: an arrival beyond its user's limit does not count towards its app, so that one abuser
cannot throttle the app's other users; and an interaction protects at most kappa * T_user calls per client and window,
so that endless, replayed or shared interactions gain nothing beyond that.
"""

from fairlead.outcomes import Outcome
from throttler.core.profiles import Limits
from throttler.core.throttle import WINDOW_SECONDS, Admitted, Decision, Rejected
from throttler.core.windows import SlidingWindow


class Oit:
    """Refuses only while the pool is overloaded, and never a call that an interaction in progress protects."""

    def __init__(self, limits: Limits) -> None:
        self._users = SlidingWindow(limits.user_per_minute, WINDOW_SECONDS)
        self._apps = SlidingWindow(limits.app_per_minute, WINDOW_SECONDS)
        self._protected = SlidingWindow(limits.protected_per_minute, WINDOW_SECONDS)

    def admit(self, client: str, app: str, protected: bool, overloaded: bool, now: float) -> Decision:
        """See Throttle."""
        user_wait = self._users.arrived(client, now)
        app_wait = 0.0 if user_wait else self._apps.arrived(app, now)
        if protected:
            protected = not self._protected.arrived(client, now)
        if protected or not overloaded:
            return Admitted(protected)
        if user_wait:
            return _rejected(Outcome.THROTTLED_USER, "user", client, self._users.limit, user_wait)
        if app_wait:
            return _rejected(Outcome.THROTTLED_APP, "app", app, self._apps.limit, app_wait)
        return Admitted(protected)

    def check_invariants(self) -> None:
        """See Throttle."""
        for window in (self._users, self._apps, self._protected):
            window.check_invariants()


def _rejected(outcome: Outcome, kind: str, name: str, limit: int, wait: float) -> Rejected:
    message = f"overloaded, and {kind} {name!r} is over {kind}_per_minute={limit}; retry in {wait:.1f} s"
    return Rejected(outcome, wait, message)
