"""The rate limit of the system behind the VTC measurements: a sliding window that counts only admitted calls.

It is inferred from the measured refusals. The product's own baseline counts per minute of the clock
(throttler.core.throttles).
"""

from collections import deque
from collections.abc import Sequence

from fairlead.outcomes import Outcome
from throttler.core.profiles import Profiles
from throttler.core.throttle import Admitted, Caller, Decision, Rejected
from throttler.core.windows import Quota, QuotaAccount, SlidingWindow


class SlidingRpm:
    """A limit on the admitted calls of each user in any `seconds`, for the only gateway (a ThrottleRule)."""

    protects = False

    def __init__(self, profiles: Profiles, quota: Quota, seconds: float) -> None:
        self.window = SlidingWindow(seconds, quota)  # stays empty: no other gateway shares the counts
        self._limit = profiles.limits.user_per_minute
        self._admitted: dict[str, deque[float]] = {}

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        """Decide as ThrottleRule specifies; only the client and `now` (seconds) matter."""
        times = self._admitted.setdefault(caller.client, deque())
        while times and times[0] <= now - self.window.seconds:
            times.popleft()
        if len(times) >= self._limit:
            wait = times[0] + self.window.seconds - now
            return Rejected(
                Outcome.THROTTLED_USER,
                wait,
                f"user {caller.client!r} had {self._limit} calls in {self.window.seconds:g} s",
                self._limit,
            )
        times.append(now)
        return Admitted(protected)

    def enforces(self, overloaded: bool) -> bool:
        """Return True, as ThrottleRule specifies."""
        return True

    def accounts(self, caller: Caller) -> Sequence[QuotaAccount]:
        """See ThrottleRule; empty, because simulated callers do not read their limits."""
        return ()

    def refused(self, client: str, now: float) -> None:
        """See ThrottleRule; only admitted calls count."""

    def configure(self, profiles: Profiles) -> None:
        self._limit = profiles.limits.user_per_minute

    def check_invariants(self) -> None:
        for client, times in self._admitted.items():
            assert len(times) <= self._limit, f"{client}: {len(times)} calls admitted, the limit is {self._limit}"
