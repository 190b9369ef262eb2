"""A limit on the number of open calls."""

from collections import Counter

from fairlead.errors import ClientLimit, QueueFull

RETRY_SECONDS = 1.0
RESERVED = 1 / 8  # part of all places that only protected calls may take


class OpenCallLimiter:
    """The number of open calls, limited per client and over all clients.

    A client may have no more calls open than there are free places (dynamic thresholds, Choudhury and Hahne 1998): k
    clients that take all they can leave 1 / (k + 1) of the places free, so that no client is locked out by others.
    Protected calls may also take the reserve and have no limit per client, because the throttle caps their number.
    """

    def __init__(self, *, per_client: int, total: int) -> None:
        self._per_client = per_client
        self._total = total
        self._reserve = round(RESERVED * total)
        self._open: Counter[str] = Counter()
        self._count = 0

    @property
    def count(self) -> int:
        """Open calls."""
        return self._count

    def open(self, client: str, protected: bool) -> None:
        """Count a call in, `protected` by an interaction in progress or not; raises ClientLimit or QueueFull."""
        if not protected and self._open[client] >= self._per_client:
            limit = f"max_streams_per_client={self._per_client}"
            raise ClientLimit(f"client {client!r} has {self._open[client]} calls open; {limit}", RETRY_SECONDS)
        if self._open[client] >= self._total - self._count - (0 if protected else self._reserve):
            message = f"the gateway has {self._count} calls open, {self._open[client]} of them of client {client!r}"
            raise QueueFull(f"{message}; max_streams={self._total}", RETRY_SECONDS)
        self._open[client] += 1
        self._count += 1

    def close(self, client: str) -> None:
        """Release one open call of `client`."""
        self._open[client] -= 1
        self._count -= 1
        if not self._open[client]:
            del self._open[client]

    def check_invariants(self) -> None:
        """Raise AssertionError unless the counts agree and no client is kept without a call."""
        assert self._count == self._open.total(), f"{self._count} calls open, clients have {self._open.total()}"
        assert all(count > 0 for count in self._open.values()), f"clients without calls: {self._open}"
