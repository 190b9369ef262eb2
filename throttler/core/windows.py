"""Sliding windows of arrivals per key.

A window must only tell whether a key has had `limit` arrivals within the last `seconds`; the newest `limit` times
answer that exactly, so a flooder costs no more memory than the limit. Keys are held in order of their last arrival,
and those whose last arrival left the window are forgotten.
"""

from collections import deque


class SlidingWindow:
    """At most `limit` arrivals per key in any `seconds`; every arrival counts, also those over the limit."""

    def __init__(self, limit: int, seconds: float) -> None:
        self.limit = limit
        self.seconds = seconds
        self._arrivals: dict[str, deque[float]] = {}

    def __len__(self) -> int:
        return len(self._arrivals)

    def arrived(self, key: str, now: float) -> float:
        """Count an arrival; 0 when it is within the limit, else the seconds until another one would be."""
        self._forget(now)
        times = self._arrivals.pop(key, None)
        if times is None:
            times = deque(maxlen=self.limit)
        over = len(times) == self.limit and times[0] > now - self.seconds
        times.append(now)
        self._arrivals[key] = times
        return max(times[0] - (now - self.seconds), 0.0) if over else 0.0

    def check_invariants(self) -> None:
        """Raise AssertionError unless times are bounded and ordered, and keys ordered by last arrival."""
        last = float("-inf")
        for key, times in self._arrivals.items():
            assert 0 < len(times) <= self.limit, f"{key}: {len(times)} times kept, limit {self.limit}"
            assert list(times) == sorted(times), f"{key}: times out of order"
            assert times[-1] >= last, f"{key}: kept behind a key that arrived later"
            last = times[-1]

    def _forget(self, now: float) -> None:
        while self._arrivals:
            key, times = next(iter(self._arrivals.items()))
            if times[-1] > now - self.seconds:
                return
            del self._arrivals[key]
