"""Fair queueing by start and finish tags, with equal weights for all clients.

In virtual time, the first item of a client starts when the client's previous item finished, but not before the virtual
clock; it finishes one cost later. The item with the earliest finish is taken. The clock is the earliest start of all
items that waited when an item was last taken. This is starting-potential fair queueing (Stiliadis and Varma, Efficient
Fair Queueing Algorithms for Packet-Switched Networks, IEEE/ACM Transactions on Networking 6(2), 1998) without the part
of its clock that advances with real time. Costs are integers of any unit. It follows that

- the total costs taken from two clients that always have items waiting differ by at most twice the largest cost;
- before an item of cost `c` of a client that was idle lately, items of total cost at most `c` are taken from any other
  client: clients with small demands do not wait for clients with large ones.
"""

from collections import deque
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _ClientQueue(Generic[T]):
    """The waiting items of one client; the first one starts at `start` in virtual time."""

    start: int
    items: deque[tuple[int, T]] = field(default_factory=deque)

    @property
    def finish(self) -> int:
        return self.start + self.items[0][0]


class FairQueue(Generic[T]):
    """Items, each with a client and a cost. The items of one client are taken in the order in which they were put."""

    def __init__(self) -> None:
        self._clock = 0
        self._queues: dict[str, _ClientQueue[T]] = {}  # among equal finishes the first entry is taken
        # Start tags, after the clock, of clients without waiting items.
        self._next_starts: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(len(queue.items) for queue in self._queues.values())

    def put(self, client: str, cost: int, item: T) -> None:
        """Add `item` with its `cost`; raises ValueError unless the cost is positive."""
        if cost <= 0:
            raise ValueError(f"cost: must be positive, got {cost}")
        if client not in self._queues:
            self._queues[client] = _ClientQueue(max(self._clock, self._next_starts.pop(client, 0)))
        self._queues[client].items.append((cost, item))

    def take(self) -> T | None:
        """Remove and return the next item; None when the queue is empty.

        An empty queue also forgets all clients: the caller has no item in progress then.
        """
        if not self._queues:
            self._next_starts.clear()
            return None
        self._clock = max(self._clock, min(map(attrgetter("start"), self._queues.values())))
        client, queue = min(self._queues.items(), key=lambda entry: entry[1].finish)
        queue.start = queue.finish
        _, item = queue.items.popleft()
        self._requeue(client, queue)
        self._drop_past_starts()
        return item

    def withdraw(self, client: str, item: T) -> None:
        """Remove a waiting `item` that is no longer needed; its client is not charged for it."""
        queue = self._queues[client]
        queue.items = deque(entry for entry in queue.items if entry[1] is not item)
        if not queue.items:
            self._requeue(client, queue)

    def check_invariants(self) -> None:
        """Raise AssertionError when a queue is empty or starts before the clock, or a client is kept twice."""
        for client, queue in self._queues.items():
            assert queue.items, f"{client}: its queue is empty"
            assert queue.start >= self._clock, f"{client}: starts at {queue.start}, before the clock {self._clock}"
            assert client not in self._next_starts, f"{client}: is kept as waiting and as idle"

    def _requeue(self, client: str, queue: _ClientQueue[T]) -> None:
        """Put `client` behind clients of equal finish; if it has no items, keep its next start while that is ahead."""
        del self._queues[client]
        if queue.items:
            self._queues[client] = queue
        else:
            self._next_starts[client] = queue.start

    def _drop_past_starts(self) -> None:
        while self._next_starts:
            client, start = next(iter(self._next_starts.items()))
            if start > self._clock:
                return
            del self._next_starts[client]
