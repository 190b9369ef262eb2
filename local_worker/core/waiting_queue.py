"""The requests that wait to enter the running batch."""

from collections.abc import Iterator
from itertools import chain

from fairlead.errors import ClientLimit, QueueFull
from local_worker.core.accounts.account import Account
from local_worker.core.accounts.tree import AccountTree, ClassedAccounts
from local_worker.core.limits import BatchLimits
from local_worker.core.request import Request

RETRY_SECONDS = 1.0


class WaitingQueue:
    """Waiting requests in the order in which they were queued. The policy decides in which order they are served.

    Requests that are never dropped (`Request.is_exempt`) could fill the queue. An account of the highest level of
    fairness may therefore have no more of them waiting than they leave places (dynamic thresholds, Choudhury and Hahne
    1998): k accounts that take all they can leave 1 / (k + 1) of the places to others. Each class has as many places as
    `max_waiting` says.
    """

    def __init__(self, limits: BatchLimits, accounts: AccountTree | ClassedAccounts) -> None:
        self._limits = limits
        self._accounts = accounts
        self._since: dict[Request, float] = {}  # interactive requests, and when they were queued
        self._background: dict[Request, float] = {}  # the same for those of the background class
        self._droppable: dict[Account, dict[Request, None]] = {}  # by leaf: requests that may be dropped

    def __len__(self) -> int:
        return len(self._since) + len(self._background)

    def __contains__(self, request: Request) -> bool:
        return request in self._of(request)

    def __iter__(self) -> Iterator[Request]:
        """Iterate over the waiting requests, interactive ones first, and of each class the longest waiting first."""
        return chain(self._since, self._background)

    @property
    def background(self) -> int:
        return len(self._background)

    def _of(self, request: Request) -> dict[Request, float]:
        return self._background if request.background else self._since

    @property
    def oldest_since(self) -> float | None:
        """The time (seconds) at which the longest waiting interactive request was queued; None if none waits."""
        return next(iter(self._since.values()), None)

    def check_limits(self, request: Request) -> None:
        """Raise ClientLimit if the client of a new `request`, or its account of the highest level, may not have one
        more waiting."""
        accounts = self._accounts.of(request)
        waiting = accounts.waiting(request.client)
        if waiting >= self._limits.max_waiting_per_client:
            message = f"the client has {waiting} requests waiting"
            raise ClientLimit(f"{message}; the limit is {self._limits.max_waiting_per_client}", RETRY_SECONDS)
        highest = accounts.root.members.get(request.path[0])
        exempt, most = 0 if highest is None else highest.exempt, self._limits.max_waiting - accounts.exempt
        if request.is_exempt and exempt >= most:
            message = f"{request.path[0]!r} has {exempt} requests waiting that are never dropped for others"
            raise ClientLimit(f"{message}; the limit is {most}, the places without such requests", RETRY_SECONDS)

    def request_to_drop_for(self, request: Request) -> Request | None:
        """Return the request that must leave before a new `request` can be added: the newest of the longest queue; None
        while there is room.

        Raises QueueFull when the queue is full and no request may be dropped for `request`.
        """
        waiting = len(self._of(request))
        if waiting < self._limits.max_waiting:
            return None
        leaf = self._accounts.of(request).leaf_to_drop_from(request)
        if leaf is None:
            message = f"{waiting} requests are waiting; the limit is {self._limits.max_waiting}"
            raise QueueFull(message, RETRY_SECONDS)
        return next(reversed(self._droppable[leaf]))

    def add(self, request: Request, now: float) -> None:
        """Add a new `request`, queued at `now` (seconds)."""
        self.put_back(request, now)
        if not request.is_exempt:
            self._droppable.setdefault(request.account, {})[request] = None

    def put_back(self, request: Request, now: float) -> None:
        """Add a `request` that was preempted from the running batch; it is never dropped for another request."""
        self._of(request)[request] = now

    def remove(self, request: Request) -> None:
        """Remove a `request` that was admitted or has been given up."""
        del self._of(request)[request]
        queue = self._droppable.get(request.account, {})
        if request in queue:
            del queue[request]
            if not queue:
                del self._droppable[request.account]

    def check_invariants(self) -> None:
        """Raise AssertionError unless every request that may be dropped is waiting and is counted by its account."""
        droppable = [request for queue in self._droppable.values() for request in queue]
        assert set(self) >= set(droppable), "a request that may be dropped is not waiting"
        for leaf, queue in self._droppable.items():
            assert leaf.droppable == len(queue), f"{leaf.path}: {leaf.droppable} may be dropped, {len(queue)} in queue"
        counted = self._accounts.droppable
        assert counted == len(droppable), f"{len(droppable)} may be dropped, {counted} counted"
