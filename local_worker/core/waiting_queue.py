"""The requests that wait to enter the running batch."""

from collections import Counter
from collections.abc import Iterator

from fairlead.errors import ClientLimit, QueueFull
from local_worker.core.fairness_levels import FLAT, FairnessLevels
from local_worker.core.limits import BatchLimits
from local_worker.core.longest_queue_drop import LongestQueueDrop, is_exempt
from local_worker.core.request import Request

RETRY_SECONDS = 1.0


class WaitingQueue:
    """Waiting requests in the order in which they were queued. The policy decides in which order they are served.

    Requests that are never dropped (`is_exempt`) could fill the queue. An account of the highest level of fairness may
    therefore have no more of them waiting than they leave places (dynamic thresholds, Choudhury and Hahne 1998): k
    accounts that take all they can leave 1 / (k + 1) of the places to others.
    """

    def __init__(self, limits: BatchLimits, levels: FairnessLevels = FLAT) -> None:
        self._limits = limits
        self._levels = levels
        self._since: dict[Request, float] = {}
        self._overflow = LongestQueueDrop(levels)
        self._exempt: Counter[str] = Counter()  # requests that are never dropped, by account of the highest level
        self._exempt_count = 0

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, request: Request) -> bool:
        return request in self._since

    def __iter__(self) -> Iterator[Request]:
        """Iterate over the waiting requests, the longest waiting first."""
        return iter(self._since)

    @property
    def oldest_since(self) -> float | None:
        """The time (seconds) at which the longest waiting request was queued; None when the queue is empty."""
        return next(iter(self._since.values()), None)

    def check_limits(self, request: Request, waiting: int) -> None:
        """Raise ClientLimit if the client of `request`, with `waiting` requests in the queue, may not have one more."""
        if waiting >= self._limits.max_waiting_per_client:
            message = f"the client has {waiting} requests waiting; the limit is {self._limits.max_waiting_per_client}"
            raise ClientLimit(message, RETRY_SECONDS)
        account = self._levels.path(request)[0]
        most = self._limits.max_waiting - self._exempt_count
        if is_exempt(request) and self._exempt[account] >= most:
            message = f"{account!r} has {self._exempt[account]} requests waiting that are never dropped for others"
            raise ClientLimit(f"{message}; the limit is {most}, the places without such requests", RETRY_SECONDS)

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
        self.put_back(request, now)
        self._overflow.add(request)

    def put_back(self, request: Request, now: float) -> None:
        """Add a `request` that was preempted from the running batch; it is never dropped for another request."""
        self._since[request] = now
        self._count_exempt(request, 1)

    def remove(self, request: Request) -> None:
        """Remove a `request` that was admitted or has been given up."""
        del self._since[request]
        self._overflow.discard(request)
        self._count_exempt(request, -1)

    def _count_exempt(self, request: Request, by: int) -> None:
        if not is_exempt(request):
            return
        account = self._levels.path(request)[0]
        self._exempt[account] += by
        self._exempt_count += by
        if not self._exempt[account]:
            del self._exempt[account]

    def check_invariants(self) -> None:
        """Raise AssertionError unless every request that may be dropped is waiting and the others are counted."""
        self._overflow.check_invariants()
        assert self._since.keys() >= {*self._overflow}, "a request that may be dropped is not waiting"
        exempt = Counter(self._levels.path(request)[0] for request in self._since if is_exempt(request))
        assert {**self._exempt} == {**exempt}, f"never dropped: {exempt}, counted {self._exempt}"
        assert self._exempt_count == exempt.total(), f"never dropped: {exempt}, {self._exempt_count} counted in all"
