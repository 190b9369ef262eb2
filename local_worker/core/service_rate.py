"""The rate of service of a full worker, which converts a fairness bound from cost units to seconds."""

import math

MEMORY_SECONDS = 60.0  # time constant of the moving average, in seconds in which requests waited
LEAST_SECONDS = 1.0  # shortest time for which the rate is meaningful


class ServiceRate:
    """A moving average of the service over weight that all clients receive per second while requests wait.

    A worker for which no request waits serves as much as is asked of it, which does not show how fast it could be. The
    bound is about clients that wait.
    """

    def __init__(self) -> None:
        # Micro-units of service, and the seconds in which they were given; both decay with time.
        self._service = 0.0
        self._seconds = 0.0
        self._served = 0
        self._updated_at = 0.0
        self._is_full = False

    @property
    def micro_per_second(self) -> float:
        """The rate in micro-units per second; 0.0 until requests have waited for `LEAST_SECONDS`."""
        return self._service / self._seconds if self._seconds >= LEAST_SECONDS else 0.0

    def observe(self, served: int, is_full: bool, now: float) -> None:
        """Update the average; to be called once per step.

        `served` is the service over weight since the start, in micro-units; `is_full` says whether requests wait from
        `now` (seconds) on.
        """
        if self._is_full:
            seconds = now - self._updated_at
            kept = math.exp(-seconds / MEMORY_SECONDS)
            self._service = self._service * kept + served - self._served
            self._seconds = self._seconds * kept + seconds
        self._served, self._updated_at, self._is_full = served, now, is_full

    def check_invariants(self) -> None:
        """Raise AssertionError when the averaged service or time is negative."""
        assert self._service >= 0, f"service {self._service}"
        assert self._seconds >= 0, f"full for {self._seconds} s"
