"""How many may be inside at once, whoever they are."""

from collections import Counter

from fairlead.errors import QueueFull

RETRY_SECONDS = 1.0


class ConcurrencyLimiter:
    """Places for `total` in all. A source may have no more of them than are left.

    Dynamic thresholds (Choudhury and Hahne 1998): k sources that take all they can get leave 1 / (k + 1) of the room.
    """

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what
        self._inside: Counter[str] = Counter()
        self._count = 0

    def enter(self, source: str) -> None:
        """Count one in; raises QueueFull."""
        if self._inside[source] >= self._total - self._count:
            message = f"{self._count} {self._what}, {self._inside[source]} of them of this connection"
            raise QueueFull(f"{message}; at most {self._total}", RETRY_SECONDS)
        self._inside[source] += 1
        self._count += 1

    def leave(self, source: str) -> None:
        """Undo one `enter`."""
        self._count -= 1
        self._inside[source] -= 1
        if not self._inside[source]:
            del self._inside[source]

    def check_invariants(self) -> None:
        """Raise AssertionError unless the counts agree and no source is kept that has nobody inside."""
        assert self._count == self._inside.total() <= self._total, f"{self._count} of {self._total}: {self._inside}"
        assert all(count > 0 for count in self._inside.values()), f"sources without anybody: {self._inside}"
