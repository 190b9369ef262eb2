"""The requests that wait to enter the running batch."""

from collections.abc import Collection

from fairlead.errors import ClientLimit, QueueFull
from local_worker.core.limits import BatchLimits
from local_worker.core.longest_queue_drop import LongestQueueDrop
from local_worker.core.request import Request

RETRY_SECONDS = 1.0


class WaitingQueue:
    """Waiting requests in the order in which they were queued. The policy decides in which order they are served."""

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
        """The waiting requests, the longest waiting first."""
        return self._since.keys()

    @property
    def oldest_since(self) -> float | None:
        """The time (seconds) at which the longest waiting request was queued; None when the queue is empty."""
        return next(iter(self._since.values()), None)

    def check_client(self, waiting: int) -> None:
        """Raise ClientLimit if a client with `waiting` requests in the queue may not have one more."""
        if waiting >= self._limits.max_waiting_per_client:
            message = f"the client has {waiting} requests waiting; the limit is {self._limits.max_waiting_per_client}"
            raise ClientLimit(message, RETRY_SECONDS)

    def request_to_drop_for(self, request: Request) -> Request | None:
        """Return the request that must leave before `request` can be added; None while there is room.

        Raises QueueFull when the queue is full and no request may be dropped for `request`.
        """
        if len(self) < self._limits.max_waiting:
            return None
        displaced = self._overflow.request_to_drop_for(request)
        if displaced is None:
            message = f"{len(self)} requests are waiting; the limit is {self._limits.max_waiting}"
            raise QueueFull(message, RETRY_SECONDS)
        return displaced

    def add(self, request: Request, now: float) -> None:
        """Add a new `request`, queued at `now` (seconds)."""
        self._since[request] = now
        self._overflow.add(request)

    def put_back(self, request: Request, now: float) -> None:
        """Add a `request` that was preempted from the running batch; it is never dropped for another request."""
        self._since[request] = now

    def remove(self, request: Request) -> None:
        """Remove a `request` that was admitted or has been given up."""
        del self._since[request]
        self._overflow.discard(request)

    def check_invariants(self) -> None:
        """Raise AssertionError unless every request that may be dropped is waiting."""
        self._overflow.check_invariants()
        assert all(request in self._since for request in self._overflow), "a request that may be dropped is not waiting"
