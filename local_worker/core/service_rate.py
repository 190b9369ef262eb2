"""How fast this worker serves: with it a bound in cost units can be told in seconds."""

import math

MEMORY_SECONDS = 60.0  # of work: the time constant of the moving average
LEAST_SECONDS = 1.0  # of work; less says nothing


class ServiceRate:
    """Service over weight of all clients per second of work, as a moving average; seconds without work do not count."""

    def __init__(self) -> None:
        self._gained = 0.0  # micro-units, and in how many seconds; older ones count less
        self._seconds = 0.0
        self._served = 0
        self._at = 0.0
        self._busy = False

    @property
    def micro_per_second(self) -> float:
        """Micro-units; 0.0 as long as the worker has not worked for a second."""
        return self._gained / self._seconds if self._seconds >= LEAST_SECONDS else 0.0

    def observe(self, served: int, busy: bool, now: float) -> None:
        """Once per step: the service given since the start, in micro-units, and whether there is work from `now` on."""
        seconds = now - self._at if self._busy else 0.0
        kept = math.exp(-seconds / MEMORY_SECONDS)
        self._gained = self._gained * kept + served - self._served
        self._seconds = self._seconds * kept + seconds
        self._served, self._at, self._busy = served, now, busy

    def check_invariants(self) -> None:
        """Raise AssertionError when more has been forgotten than there was."""
        assert self._gained >= 0, f"gained {self._gained}"
        assert self._seconds >= 0, f"worked for {self._seconds} s"
