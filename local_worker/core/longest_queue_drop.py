"""Who has to give way when the queue is full: requests that no interaction protects and that never ran."""

from collections.abc import Iterator
from itertools import chain

from local_worker.core.request import Request


class LongestQueueDrop:
    """Waiting requests by client, and the client with most of them; every operation takes constant time."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[Request, None]] = {}
        self._levels: dict[int, dict[str, None]] = {}  # queue length -> the clients with it, the earliest there first
        self._longest = 0

    def __iter__(self) -> Iterator[Request]:
        """Who may have to give way, by client."""
        return chain.from_iterable(self._queues.values())

    def giving_way_to(self, request: Request) -> Request | None:
        """The newest request of the client with most of them; None when that is the one who asks, or there is nobody.

        A shared bound alone would let one flooder push everybody else out before fairness can act.
        """
        own = 0 if _is_safe(request) else len(self._queues.get(request.client, ()))
        if self._longest <= own:
            return None
        client = next(iter(self._levels[self._longest]))
        return next(reversed(self._queues[client]))

    def add(self, request: Request) -> None:
        """`request` waits; does nothing for one that never gives way."""
        if _is_safe(request):
            return
        queue = self._queues.setdefault(request.client, {})
        self._move(request.client, len(queue), len(queue) + 1)
        queue[request] = None
        self._longest = max(self._longest, len(queue))

    def discard(self, request: Request) -> None:
        """`request` waits no more, if it is here."""
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
        """Raise AssertionError unless the levels are the queues' lengths."""
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


def _is_safe(request: Request) -> bool:
    return request.in_interaction or request.seed_position > 0
