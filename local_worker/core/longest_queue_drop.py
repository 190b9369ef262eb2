"""Longest queue drop: the choice of the waiting request that is dropped when the queue is full.

Requests that continue an interaction, and requests with output from an earlier attempt, are never dropped.
"""

from collections.abc import Iterator
from itertools import chain

from local_worker.core.request import Request


class LongestQueueDrop:
    """Waiting requests by client, and the client with the longest queue; every operation takes constant time."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[Request, None]] = {}
        self._levels: dict[int, dict[str, None]] = {}  # queue length -> clients with it, in the order of reaching it
        self._longest = 0

    def __iter__(self) -> Iterator[Request]:
        """Iterate over the requests that may be dropped, client by client."""
        return chain.from_iterable(self._queues.values())

    def request_to_drop_for(self, request: Request) -> Request | None:
        """Return the request to drop so that `request` can be queued: the newest of the client with the longest queue.

        Return None if no client's queue is longer than that of `request`'s own client, or if no request may be dropped.
        The own queue counts as empty for a request that itself is never dropped. With a limit on the whole queue alone,
        one client's flood would drop all others before a policy could be fair.
        """
        own = 0 if _is_exempt(request) else len(self._queues.get(request.client, ()))
        if self._longest <= own:
            return None
        client = next(iter(self._levels[self._longest]))
        return next(reversed(self._queues[client]))

    def add(self, request: Request) -> None:
        """Add a waiting `request`; do nothing if it must never be dropped."""
        if _is_exempt(request):
            return
        queue = self._queues.setdefault(request.client, {})
        self._move(request.client, len(queue), len(queue) + 1)
        queue[request] = None
        self._longest = max(self._longest, len(queue))

    def discard(self, request: Request) -> None:
        """Remove `request`, if it is held here."""
        queue = self._queues.get(request.client, {})
        if request not in queue:
            return
        self._move(request.client, len(queue), len(queue) - 1)
        del queue[request]
        if not queue:
            del self._queues[request.client]
        if self._longest not in self._levels:
            self._longest -= 1

    def check_invariants(self) -> None:
        """Raise AssertionError unless the levels agree with the lengths of the queues."""
        lengths = {client: len(queue) for client, queue in self._queues.items()}
        levels = {client: length for length, clients in self._levels.items() for client in clients}
        assert lengths == levels, f"queues {lengths}, levels {levels}"
        assert self._longest == max(lengths.values(), default=0), f"longest {self._longest} of {lengths}"

    def _move(self, client: str, old: int, new: int) -> None:
        if old:
            del self._levels[old][client]
            if not self._levels[old]:
                del self._levels[old]
        if new:
            self._levels.setdefault(new, {})[client] = None


def _is_exempt(request: Request) -> bool:
    return request.in_interaction or request.seed_position > 0
