"""The requests that wait to enter the running batch."""

from collections.abc import Collection

from fairlead.errors import ClientLimit, QueueFull
from local_worker.core.limits import BatchLimits
from local_worker.core.longest_queue_drop import LongestQueueDrop
from local_worker.core.request import Request

RETRY_SECONDS = 1.0


class WaitingQueue:
    """Requests in the order in which they began to wait. In what order they are served is the policy's decision."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._since: dict[Request, float] = {}
        self._overflow = LongestQueueDrop()

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, request: Request) -> bool:
        return request in self._since

    @property
    def requests(self) -> Collection[Request]:
        """The longest waiting first."""
        return self._since.keys()

    @property
    def oldest_since(self) -> float | None:
        """When the longest-waiting request was queued; None when nobody waits."""
        return next(iter(self._since.values()), None)

    def check_client(self, waiting: int) -> None:
        """Raise ClientLimit unless a client that has `waiting` requests here may have one more."""
        if waiting >= self._limits.max_waiting_per_client:
            message = f"the client has {waiting} requests waiting; the limit is {self._limits.max_waiting_per_client}"
            raise ClientLimit(message, RETRY_SECONDS)

    def giving_way_to(self, request: Request) -> Request | None:
        """Return who has to leave before `request` can be added; None while there is room.

        Raises QueueFull when there is no room and nobody has to leave for `request`.
        """
        if len(self) < self._limits.max_waiting:
            return None
        displaced = self._overflow.giving_way_to(request)
        if displaced is None:
            message = f"{len(self)} requests are waiting; the limit is {self._limits.max_waiting}"
            raise QueueFull(message, RETRY_SECONDS)
        return displaced

    def add(self, request: Request, now: float) -> None:
        """`request` is new."""
        self._since[request] = now
        self._overflow.add(request)

    def put_back(self, request: Request, now: float) -> None:
        """`request` was preempted from the running batch; it never gives way to others."""
        self._since[request] = now

    def remove(self, request: Request) -> None:
        """`request` waits no more: it is served or has left."""
        del self._since[request]
        self._overflow.discard(request)

    def check_invariants(self) -> None:
        """Raise AssertionError unless those who may have to give way are among those who wait."""
        self._overflow.check_invariants()
        assert all(request in self._since for request in self._overflow), "somebody may give way who does not wait"
