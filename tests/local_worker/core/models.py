"""The papers' pseudo-code written out, line by line and as slow as it reads."""

from collections.abc import Callable
from dataclasses import dataclass, field

Q = 10_000_000  # Q^u in micro-units


@dataclass
class Item:
    """A waiting request as pseudo-code sees it."""

    client: str
    arrival: int
    matched: int
    extend: int  # micro-units charged at admission


@dataclass
class NaiveDlpm:
    """DLPM Algorithm 1 (one refill round at a time)."""

    q: dict[str, int] = field(default_factory=dict)
    queue: list[Item] = field(default_factory=list)

    def arrived(self, item: Item) -> None:
        self.q.setdefault(item.client, 0)
        self.queue.append(item)

    def check_refill(self) -> None:
        if any(self.q[item.client] > 0 for item in self.queue):
            return
        for client in self.q:
            if self.q[client] <= 0:
                self.q[client] += Q

    def select(self, can_add: Callable[[Item], bool]) -> list[Item]:
        """Until a pass adds nothing although every client in credit was tried."""
        self.queue.sort(key=lambda item: (-item.matched, item.arrival))
        added: list[Item] = []
        while self.queue:
            before = len(added)
            for item in list(self.queue):
                while self.q[item.client] <= 0 and not any(self.q[i.client] > 0 for i in self.queue):
                    self.check_refill()
                if self.q[item.client] > 0 and can_add(item):
                    added.append(item)
                    self.q[item.client] -= item.extend
                    self.queue.remove(item)
            if len(added) == before:
                break
        return added


@dataclass
class NaiveVtc:
    """VTC Algorithm 2."""

    c: dict[str, int] = field(default_factory=dict)
    queue: list[Item] = field(default_factory=list)
    last_left: str | None = None

    def arrived(self, item: Item) -> None:
        if not any(other.client == item.client for other in self.queue):
            if not self.queue:
                floor = self.c.get(self.last_left, 0) if self.last_left is not None else 0
            else:
                floor = min(self.c[other.client] for other in self.queue)
            self.c[item.client] = max(self.c.get(item.client, 0), floor)
        self.queue.append(item)

    def left(self, item: Item) -> None:
        self.queue.remove(item)
        if not any(other.client == item.client for other in self.queue):
            self.last_left = item.client

    def select(self, can_add: Callable[[Item], bool]) -> list[Item]:
        added: list[Item] = []
        while self.queue:
            least = min(self.c[item.client] for item in self.queue)
            candidates = [item for item in self.queue if self.c[item.client] == least]
            item = min(candidates, key=lambda i: i.arrival)
            if not can_add(item):
                break
            self.left(item)
            self.c[item.client] += item.extend
            added.append(item)
        return added
