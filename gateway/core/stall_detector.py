"""Whether this gateway itself stood still: then what it has lost may be its own doing."""

BEAT_SECONDS = 0.25
LATE_SECONDS = 1.0
AFTERMATH_SECONDS = 8.0  # keepalive finds a dead link within 6


class StallDetector:
    """Noticed by heartbeats that come late: the process was stopped, or its loop was kept busy.

    Meanwhile its pings went unanswered, so that healthy peers have ended their links, or seem to have fallen silent.
    """

    def __init__(self, now: float) -> None:
        self._last = now
        self._until = now

    def beat(self, now: float) -> None:
        """The process is here; called every BEAT_SECONDS while it is."""
        if self._is_late(now):
            self._until = now + AFTERMATH_SECONDS
        self._last = now

    def explains(self, now: float) -> bool:
        """Whether a link that is lost at `now` may have been lost for that reason."""
        return self._is_late(now) or now < self._until

    def _is_late(self, now: float) -> bool:
        return now - self._last > LATE_SECONDS
