"""Whose work is done next: fair queueing by start and finish tags, every client alike.

The work at the head of a client's line starts, in virtual time, where the client's last one finished, but not before
the clock; it finishes its cost later. What finishes first is taken. The clock is the earliest start of all that waited
when something was last taken: that of starting-potential fair queueing (Stiliadis and Varma, Efficient Fair Queueing
Algorithms for Packet-Switched Networks, IEEE/ACM Transactions on Networking 6(2), 1998), without its part that runs
with the time. Costs are integers of any unit. It follows that

- what is taken of two clients that have work waiting all the time differs by at most twice the largest cost;
- before work of cost `c`, of a client that nothing was taken of lately, at most `c` is taken of any other client: who
  asks for little does not wait for those who ask for much.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Line(Generic[T]):
    """What a client has waiting; its head starts at `start`."""

    start: int
    items: deque[tuple[int, T]] = field(default_factory=deque)

    @property
    def finish(self) -> int:
        return self.start + self.items[0][0]


class FairQueue(Generic[T]):
    """Items with a client and a cost. A client's own come in the order in which they were put."""

    def __init__(self) -> None:
        self._clock = 0
        self._lines: dict[str, _Line[T]] = {}  # of equal finishes the first one goes first
        self._ahead: dict[
            str, int
        ] = {}  # of clients with nothing waiting: where their next work starts, after the clock

    def __len__(self) -> int:
        return sum(len(line.items) for line in self._lines.values())

    def put(self, client: str, cost: int, item: T) -> None:
        """`item` waits from now on; raises ValueError unless its cost is positive."""
        if cost <= 0:
            raise ValueError(f"cost: must be positive, got {cost}")
        if client not in self._lines:
            self._lines[client] = _Line(max(self._clock, self._ahead.pop(client, 0)))
        self._lines[client].items.append((cost, item))

    def take(self) -> T | None:
        """The next item, which waits no more; None, and all is forgotten, when there is none and none is under way."""
        if not self._lines:
            self._clock = 0
            self._ahead.clear()
            return None
        self._clock = max(self._clock, min(line.start for line in self._lines.values()))
        client, line = min(self._lines.items(), key=lambda entry: entry[1].finish)
        line.start = line.finish
        _, item = line.items.popleft()
        self._requeue(client, line)
        self._forget()
        return item

    def withdraw(self, client: str, item: T) -> None:
        """`item`, which waits, is not wanted any more and costs its client nothing."""
        line = self._lines[client]
        line.items = deque(entry for entry in line.items if entry[1] is not item)
        if not line.items:
            self._requeue(client, line)

    def check_invariants(self) -> None:
        """Raise AssertionError when a line is empty or starts before the clock, or a client counts twice."""
        for client, line in self._lines.items():
            assert line.items, f"{client}: nothing waits"
            assert line.start >= self._clock, f"{client}: starts at {line.start}, and it is {self._clock}"
            assert client not in self._ahead, f"{client}: waits, and is remembered as one that does not"

    def _requeue(self, client: str, line: _Line[T]) -> None:
        """Behind those of equal finish; a client without a line is remembered as long as it is ahead of the clock."""
        del self._lines[client]
        if line.items:
            self._lines[client] = line
        else:
            self._ahead[client] = line.start

    def _forget(self) -> None:
        while self._ahead:
            client, start = next(iter(self._ahead.items()))
            if start > self._clock:
                return
            del self._ahead[client]
