"""The rate limit of the system behind the VTC measurements: a sliding window that counts only admitted calls.

It is inferred from the measured refusals. The product's own baseline counts per minute of the clock
(throttler.core.rpm).
"""

from collections import deque

from fairlead.outcomes import Outcome
from throttler.core.profiles import Profiles
from throttler.core.throttle import WINDOW_SECONDS, Admitted, Caller, Decision, Rejected


class SlidingRpm:
    """A limit on the admitted calls of each user in any 60 seconds. It implements Admits (simulation.spec)."""

    def __init__(self, profiles: Profiles) -> None:
        self._limit = profiles.limits.user_per_minute
        self._admitted: dict[str, deque[float]] = {}

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        """Decide as Admits specifies; only the client and `now` (seconds) matter."""
        times = self._admitted.setdefault(caller.client, deque())
        while times and times[0] <= now - WINDOW_SECONDS:
            times.popleft()
        if len(times) >= self._limit:
            wait = times[0] + WINDOW_SECONDS - now
            return Rejected(
                Outcome.THROTTLED_USER, wait, f"user {caller.client!r} had {self._limit} calls in 60 seconds"
            )
        times.append(now)
        return Admitted(protected)

    def check_invariants(self) -> None:
        """See Admits."""
        for client, times in self._admitted.items():
            assert len(times) <= self._limit, f"{client}: {len(times)} calls admitted, the limit is {self._limit}"
