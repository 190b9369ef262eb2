"""Requests per minute: the baseline that FairServe section 3 argues against.

Fixed windows, always on, blind to load and to interactions. Refused calls count towards nobody's limit but the
user's, as under OIT.
"""

from fairlead.outcomes import Outcome
from throttler.core.profiles import Limits
from throttler.core.throttle import WINDOW_SECONDS, Admitted, Decision, Rejected


class Rpm:
    """At most so many calls per user and per app in each minute of the clock."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._window = 0
        self._users: dict[str, int] = {}
        self._apps: dict[str, int] = {}

    def admit(self, client: str, app: str, protected: bool, overloaded: bool, now: float) -> Decision:
        """See Throttle; `overloaded` and `protected` change nothing."""
        self._turn(now)
        wait = (self._window + 1) * WINDOW_SECONDS - now
        user_limit, app_limit = self._limits.user_per_minute, self._limits.app_per_minute
        self._users[client] = self._users.get(client, 0) + 1
        if self._users[client] > user_limit:
            message = f"user {client!r} is over user_per_minute={user_limit}; retry in {wait:.1f} s"
            return Rejected(Outcome.THROTTLED_USER, wait, message)
        self._apps[app] = self._apps.get(app, 0) + 1
        if self._apps[app] > app_limit:
            message = f"app {app!r} is over app_per_minute={app_limit}; retry in {wait:.1f} s"
            return Rejected(Outcome.THROTTLED_APP, wait, message)
        return Admitted(protected)

    def check_invariants(self) -> None:
        """See Throttle."""
        passed = sum(min(count, self._limits.user_per_minute) for count in self._users.values())
        counted = sum(self._apps.values())
        assert passed == counted, f"{passed} arrivals passed the user check, {counted} counted towards apps"

    def _turn(self, now: float) -> None:
        window = int(now // WINDOW_SECONDS)
        if window != self._window:
            self._window = window
            self._users.clear()
            self._apps.clear()
