"""Whose work is done next: self-clocked fair queueing (Golestani, INFOCOM 1994, section III), every client alike.

The clock is the tag of what was taken last. Whatever comes to stand first in its client's line is tagged with the clock
plus its cost, and what has the least tag is taken. Costs are integers of any unit. Nothing is remembered of a client
that has nothing waiting. It follows that

- what is taken of two clients that have work waiting all the time differs by at most their largest costs together
  (theorem 1 there), over any time;
- before work of cost `c` that comes when its client has nothing waiting, at most `c` plus the largest cost is taken of
  any other client: who asks for little does not wait for those who ask for much.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Line(Generic[T]):
    """What a client has waiting. `since`: the clock when its first item came to stand there."""

    since: int
    items: deque[tuple[int, T]] = field(default_factory=deque)

    @property
    def tag(self) -> int:
        return self.since + self.items[0][0]


class FairQueue(Generic[T]):
    """Items with a client and a cost. A client's own come in the order in which they were put."""

    def __init__(self) -> None:
        self._clock = 0
        self._lines: dict[str, _Line[T]] = {}  # of equal tags the first one goes first

    def __len__(self) -> int:
        return sum(len(line.items) for line in self._lines.values())

    def put(self, client: str, cost: int, item: T) -> None:
        """`item` waits from now on; raises ValueError unless its cost is positive."""
        if cost <= 0:
            raise ValueError(f"cost: must be positive, got {cost}")
        self._lines.setdefault(client, _Line(self._clock)).items.append((cost, item))

    def take(self) -> T | None:
        """The next item, which waits no more; None when there is none."""
        if not self._lines:
            return None
        client, line = min(self._lines.items(), key=lambda entry: entry[1].tag)
        # Not back: an item may be tagged earlier than the clock where the one before it was withdrawn.
        self._clock = max(self._clock, line.tag)
        _, item = line.items.popleft()
        del self._lines[client]
        if line.items:
            line.since = self._clock
            self._lines[client] = line
        return item

    def withdraw(self, client: str, item: T) -> None:
        """`item`, which waits, is not wanted any more and costs its client nothing."""
        line = self._lines[client]
        line.items = deque(entry for entry in line.items if entry[1] is not item)
        if not line.items:
            del self._lines[client]

    def check_invariants(self) -> None:
        """Raise AssertionError when a line is empty, or was tagged by a clock that has not come yet."""
        for client, line in self._lines.items():
            assert line.items, f"{client}: nothing waits"
            assert line.since <= self._clock, f"{client}: tagged at {line.since}, and it is {self._clock}"
