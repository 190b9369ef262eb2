"""Detection of stalls of this gateway, which may have caused the loss of its connections."""

BEAT_SECONDS = 0.25
LATE_SECONDS = 1.0
AFTERMATH_SECONDS = 8.0  # after a stall; keepalive detects a dead link within 6 seconds


class StallDetector:
    """A detector of stalls by late heartbeats: the process was stopped, or its event loop was busy.

    During a stall the process does not answer pings. Healthy peers may therefore have closed their connections, or may
    appear to be silent.
    """

    def __init__(self, now: float) -> None:
        self._last = now
        self._until = now

    def beat(self, now: float) -> None:
        """Record a heartbeat of this process; to be called every BEAT_SECONDS."""
        if self._is_late(now):
            self._until = now + AFTERMATH_SECONDS
        self._last = now

    def explains(self, now: float) -> bool:
        """Return whether a stall may have caused the loss of a link at `now`."""
        return self._is_late(now) or now < self._until

    def _is_late(self, now: float) -> bool:
        return now - self._last > LATE_SECONDS
