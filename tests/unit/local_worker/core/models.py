"""The papers' pseudo-code, implemented line by line without regard to speed."""

from collections.abc import Callable
from dataclasses import dataclass, field

Q = 10_000_000  # Q^u in micro-units
W_Q = 2_000_000
W_S = 1_000_000  # WSC's


@dataclass
class Item:
    """A waiting request as pseudo-code sees it."""

    client: str
    arrival: int
    matched: int
    extend: int  # cost of the prompt tokens to compute, micro-units
    weight: int = 1000
    in_interaction: bool = False
    longest: int = 0  # max_tokens
    beyond: int = 0  # output tokens that are charged at admission: room beyond the client's share
    output: int = 0  # tokens generated so far
    path: tuple[str, ...] = ()  # names of its accounts, the highest first
    user_weight: int = 1000  # at all levels but the highest

    def charge(self, micro: int) -> int:
        return micro * 1000 // self.weight

    def over_weight(self, path: tuple[str, ...], micro: int) -> int:
        return micro * 1000 // (self.weight if len(path) == 1 else self.user_weight)

    def generate(self, tokens: int, paid: int = 0) -> int:
        """Add output tokens; return how many were charged neither at admission nor, as `paid`, for another reason."""
        self.output += tokens
        return max(0, min(tokens, self.output - max(self.beyond, paid)))


@dataclass
class NaiveDlpm:
    """DLPM Algorithm 1 (one refill round at a time)."""

    q: dict[str, int] = field(default_factory=dict)
    queue: list[Item] = field(default_factory=list)
    running: dict[int, Item] = field(default_factory=dict)

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
        """Admit requests as lines 17-25 do.

        The loop starts again after each admission and each refill, so that the longest match of all clients with credit
        is next. A request that did not fit is not tried again in the step, since room only shrinks.
        """
        order = sorted(self.queue, key=lambda item: (-item.matched, item.arrival))
        added: list[Item] = []
        while self.queue:
            item = next((item for item in order if self.q[item.client] > 0), None)
            if item is None:
                if any(self.q[other.client] > 0 for other in self.queue):
                    break
                self.check_refill()
                continue
            order.remove(item)
            if can_add(item):
                added.append(item)
                self.q[item.client] -= item.charge(item.extend) + item.charge(W_Q * item.beyond)
                self.queue.remove(item)
                self.running[item.arrival] = item
        return added

    def generated(self, arrival: int, tokens: int) -> None:
        item = self.running[arrival]
        self.q[item.client] -= item.charge(W_Q * item.generate(tokens))


@dataclass
class NaiveHierarchy:
    """DLPM Algorithm 1 in each group of siblings: `q` by path."""

    q: dict[tuple[str, ...], int] = field(default_factory=dict)
    queue: list[Item] = field(default_factory=list)
    running: dict[int, Item] = field(default_factory=dict)

    def arrived(self, item: Item) -> None:
        for path in above(item):
            self.q.setdefault(path, 0)
        self.queue.append(item)

    def check_refill(self, parent: tuple[str, ...] = ()) -> None:
        """Refill the members of `parent` if none that waits has credit; go on below those that have some."""
        size = len(parent) + 1
        waiting = {item.path[:size]: item for item in self.queue if item.path[: size - 1] == parent}
        while waiting and not any(self.q[path] > 0 for path in waiting):
            for path in self.q:
                if path[:-1] == parent and self.q[path] <= 0:
                    self.q[path] += Q
        for path, item in waiting.items():
            if self.q[path] > 0 and len(item.path) > size:
                self.check_refill(path)

    def select(self, can_add: Callable[[Item], bool]) -> list[Item]:
        order = sorted(self.queue, key=lambda item: (-item.matched, item.arrival))
        added: list[Item] = []
        while self.queue:
            self.check_refill()
            item = next((item for item in order if all(self.q[path] > 0 for path in above(item))), None)
            if item is None:
                break
            order.remove(item)
            if can_add(item):
                added.append(item)
                self.charge(item, item.extend)
                self.charge(item, W_Q * item.beyond)
                self.queue.remove(item)
                self.running[item.arrival] = item
        return added

    def charge(self, item: Item, micro: int) -> None:
        for path in above(item):
            self.q[path] -= item.over_weight(path, micro)

    def finished(self, arrival: int) -> None:
        del self.running[arrival]

    def generated(self, arrival: int, tokens: int) -> None:
        item = self.running[arrival]
        self.charge(item, W_Q * item.generate(tokens))


def above(item: Item) -> list[tuple[str, ...]]:
    return [item.path[:end] for end in range(1, len(item.path) + 1)]


@dataclass
class NaiveCounters:
    """The common part of the counter policies."""

    c: dict[str, int] = field(default_factory=dict)
    queue: list[Item] = field(default_factory=list)
    running: dict[int, Item] = field(default_factory=dict)

    def left(self, item: Item) -> None:
        self.queue.remove(item)

    def withdrawn(self, item: Item) -> None:
        self.left(item)

    def admit(self, item: Item) -> None:
        self.left(item)
        self.running[item.arrival] = item

    def generated(self, arrival: int, tokens: int) -> None:
        item = self.running[arrival]
        self.c[item.client] += item.charge(W_Q * item.generate(tokens))

    def finished(self, arrival: int) -> None:
        del self.running[arrival]


@dataclass
class NaiveVtc(NaiveCounters):
    """VTC Algorithm 2."""

    last_left: str | None = None

    def arrived(self, item: Item) -> None:
        if not any(other.client == item.client for other in self.queue):
            self.c[item.client] = max(self.c.get(item.client, 0), self.floor())
        self.queue.append(item)

    def floor(self) -> int:
        if not self.queue:
            return self.c.get(self.last_left, 0) if self.last_left is not None else 0
        return min(self.c[other.client] for other in self.queue)

    def left(self, item: Item) -> None:
        self.queue.remove(item)
        if not any(other.client == item.client for other in self.queue):
            self.last_left = item.client

    def candidates(self) -> list[Item]:
        return self.queue

    def entry(self, item: Item) -> int:
        return item.charge(item.extend) + item.charge(W_Q * item.beyond)

    def select(self, can_add: Callable[[Item], bool]) -> list[Item]:
        added: list[Item] = []
        while self.queue:
            eligible = self.candidates()
            least = min(self.c[item.client] for item in eligible)
            item = min((item for item in eligible if self.c[item.client] == least), key=lambda i: i.arrival)
            if not can_add(item):
                break
            self.admit(item)
            self.c[item.client] += self.entry(item)
            added.append(item)
        return added


@dataclass
class NaiveLcf(NaiveVtc):
    """VTC without lines 8-13."""

    def floor(self) -> int:
        return 0


@dataclass
class NaivePredict(NaiveVtc):
    """VTC Algorithm 3."""

    history: dict[str, list[int]] = field(default_factory=dict)
    predicted: dict[int, int] = field(default_factory=dict)

    def predict(self, item: Item) -> int:
        last = self.history.get(item.client, [])[-5:]
        return sum(last) // len(last) if last else 0

    def entry(self, item: Item) -> int:
        self.predicted[item.arrival] = self.predict(item)
        predicted = self.predicted[item.arrival]
        ahead = max(0, item.beyond - predicted)
        return item.charge(item.extend + W_Q * predicted) + item.charge(W_Q * ahead)

    def generated(self, arrival: int, tokens: int) -> None:
        item = self.running[arrival]
        self.c[item.client] += item.charge(W_Q * item.generate(tokens, self.predicted[arrival]))

    def finished(self, arrival: int) -> None:
        item = self.running.pop(arrival)
        spare = max(0, self.predicted[arrival] - max(item.output, item.beyond))
        self.c[item.client] -= item.charge(W_Q * spare)
        self.history.setdefault(item.client, []).append(item.output)


@dataclass
class NaiveOracle(NaivePredict):
    """VTC Algorithm 3 with `max_tokens` as the prediction."""

    def predict(self, item: Item) -> int:
        return item.longest


@dataclass
class NaiveWsc(NaiveVtc):
    """FairServe Algorithm 1, lines 11-18 and 26-48; alpha = gamma = 1 and no system prompts here."""

    def candidates(self) -> list[Item]:
        continuing = [item for item in self.queue if item.in_interaction]
        return continuing or self.queue

    def generated(self, arrival: int, tokens: int) -> None:
        item = self.running[arrival]
        self.c[item.client] += item.charge(W_S * item.generate(tokens))

    def entry(self, item: Item) -> int:
        return item.charge(item.extend) + item.charge(W_S * item.beyond)


@dataclass
class NaiveDrr(NaiveCounters):
    """VTC Appendix C.2, one visit at a time."""

    circle: list[str] = field(default_factory=list)
    interrupted: str | None = None

    def arrived(self, item: Item) -> None:
        self.c.setdefault(item.client, 0)
        if item.client not in self.circle:
            self.circle.append(item.client)
        self.queue.append(item)

    def waits(self, client: str) -> bool:
        return any(item.client == client for item in self.queue)

    def select(self, can_add: Callable[[Item], bool]) -> list[Item]:
        added: list[Item] = []
        while self.queue:
            client = self.circle[0]
            if self.interrupted != client and (self.c[client] < 0 or (self.c[client] == 0 and self.waits(client))):
                self.c[client] += Q
            self.interrupted = client
            while self.c[client] > 0 and self.waits(client):
                item = min((item for item in self.queue if item.client == client), key=lambda i: i.arrival)
                if not can_add(item):
                    return added
                self.admit(item)
                self.c[client] -= item.charge(item.extend) + item.charge(W_Q * item.beyond)
                added.append(item)
            self.interrupted = None
            self.circle.pop(0)
            if self.waits(client) or self.c[client] < 0:
                self.circle.append(client)
        return added

    def withdrawn(self, item: Item) -> None:
        super().withdrawn(item)
        if not self.waits(item.client) and self.c[item.client] >= 0:
            self.circle.remove(item.client)
            if self.interrupted == item.client:
                self.interrupted = None

    def generated(self, arrival: int, tokens: int) -> None:
        item = self.running[arrival]
        self.c[item.client] -= item.charge(W_Q * item.generate(tokens))
        if self.c[item.client] < 0 and item.client not in self.circle:
            self.circle.append(item.client)
