"""A limit on the number of concurrent operations, shared fairly between sources."""

from collections import Counter

from fairlead.errors import QueueFull

RETRY_SECONDS = 1.0


class ConcurrencyLimiter:
    """Limits all sources together to `total` places, and each source to the number of places that are still free.

    Dynamic thresholds (Choudhury and Hahne 1998): k sources that take all they can leave 1 / (k + 1) of the places
    free. `what` describes the holders of places in error messages.
    """

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what
        self._inside: Counter[str] = Counter()
        self._count = 0

    def enter(self, source: str) -> None:
        """Take a place for `source`; raise QueueFull if it may not have one."""
        if self._inside[source] >= self._total - self._count:
            message = f"{self._count} {self._what}, {self._inside[source]} of them of this connection"
            raise QueueFull(f"{message}; at most {self._total}", RETRY_SECONDS)
        self._inside[source] += 1
        self._count += 1

    def leave(self, source: str) -> None:
        """Release one place of `source`."""
        self._count -= 1
        self._inside[source] -= 1
        if not self._inside[source]:
            del self._inside[source]

    def check_invariants(self) -> None:
        """Raise AssertionError unless the counts agree and every remembered source holds a place."""
        assert self._count == self._inside.total() <= self._total, f"{self._count} of {self._total}: {self._inside}"
        assert all(count > 0 for count in self._inside.values()), f"sources without anybody: {self._inside}"
