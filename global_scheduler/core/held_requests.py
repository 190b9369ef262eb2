"""Requests that wait until an endpoint has room, in the order of VTC (Algorithm 2).

Unit of fairness: service that a client's requests were given, over their weights. A client that has nothing waiting
earns no credit: when a request of it comes, its counter is lifted to the least of those that wait; if none waits, to
the highest counter at which a request was served. So service while nobody waited is no debt either.
"""

from collections import deque
from collections.abc import Callable

from global_scheduler.core.policies import RouteRequest
from global_scheduler.core.service_counters import ServiceCounters

LATEST = "/"  # the account whose counter is the highest at which a request was served; no client has this name


class HeldRequests:
    """Keeps at most `most` waiting requests of each client; `counters` count what each client was given."""

    def __init__(self, most: int, counters: ServiceCounters) -> None:
        self._most = most
        self._waiting: dict[str, deque[RouteRequest]] = {}
        self._counters = counters
        counters.lift(LATEST, 0)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, request: RouteRequest) -> bool:
        """Let `request` wait behind the others of its client; return False if that has `most` already. O(clients)."""
        client = request.client
        queue = self._waiting.get(client)
        if queue is None:
            floor = min((self._counters[each] for each in self._waiting), default=self._counters[LATEST])
            self._counters.lift(client, floor)
            queue = self._waiting[client] = deque()
        if len(queue) >= self._most:
            return False
        queue.append(request)
        return True

    def remove(self, request: RouteRequest) -> None:
        """Forget a request that waits no longer; ignored if it does not wait."""
        queue = self._waiting.get(request.client)
        if queue is not None and request in queue:
            queue.remove(request)
            self._settle(request.client)

    def next(self, fits: Callable[[RouteRequest], bool]) -> RouteRequest | None:
        """Take the first request that `fits`, of the client with the least service; None if there is none.

        O(clients log clients). Ties go to the client that waits longer.
        """
        for client in sorted(self._waiting, key=self._counters.__getitem__):
            request = self._waiting[client][0]
            if fits(request):
                self._waiting[client].popleft()
                self._counters.lift(LATEST, self._counters[client])
                self._settle(client)
                return request
        return None

    def passed(self, client: str) -> None:
        """Record that a request of `client` is served although it did not wait, since nobody does."""
        self._counters.lift(client, self._counters[LATEST])
        self._counters.lift(LATEST, self._counters[client])

    def charge(self, client: str, micro: int) -> None:
        """Add service to a client's account, in micro-units over the weight; a refund is negative."""
        self._counters.charge(client, micro)
        if client not in self._waiting:
            self._counters.rest(client)

    def _settle(self, client: str) -> None:
        if not self._waiting[client]:
            del self._waiting[client]
            self._counters.rest(client)

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""
        self._counters.check_invariants()
        for client, queue in self._waiting.items():
            assert 0 < len(queue) <= self._most, f"{client}: {len(queue)} requests wait"
        counted = {client for client in self._counters.active if client != LATEST}
        assert counted == self._waiting.keys(), f"{counted} are remembered, and {self._waiting.keys()} wait"
