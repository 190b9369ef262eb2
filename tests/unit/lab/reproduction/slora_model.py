"""The measured system by its rules, as plainly as possible: its counters are floats, as the authors' were.

Two things are left out that no test here reaches: the limit of new prompts at a time, and requests that are given up.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Price = Callable[[float, float], float]  # of input and output tokens
ADAPTER, WAIT, WINDOW = 32, 10, 5


@dataclass(slots=True)
class Asked:
    """One request. `predicted` is what it paid for in advance."""

    number: int
    client: str
    prompt: int
    output: int
    made: int = 0
    predicted: float = 0.0

    @property
    def ended(self) -> bool:
        return self.made == self.output


class Router:
    """Who enters at each step, and what each client has paid, when each client's lengths are predicted or none is."""

    def __init__(self, capacity: int, price: Price, predicts: bool) -> None:
        self.counters: dict[str, float] = {}
        self._capacity, self._price, self._predicts = capacity, price, predicts
        self._queues: dict[str, list[Asked]] = {}
        self._running: list[Asked] = []
        self._unread: list[Asked] = []
        self._average: dict[str, float] = {}
        self._decoded = 0

    @property
    def busy(self) -> bool:
        """Whether anybody waits or runs."""
        return bool(self._running or self._unread or any(self._queues.values()))

    def submit(self, asked: Asked) -> None:
        self._unread.append(asked)

    def step(self, during: Iterable[Asked] = ()) -> list[int]:
        """One step, in the midst of which `during` arrive; returns who entered."""
        if not self._running:
            self._read()
        batch = self._enter() if not self._running or self._decoded >= WAIT else []
        entered = [asked.number for asked in batch]
        if batch:
            self._running += batch
            self._decoded = 0
        else:
            batch = self._running
            self._pay(batch)
            self._decoded += 1
        self._read()
        for asked in batch:
            asked.made += 1
        self._unread += during
        if any(asked.ended for asked in batch):
            self._pay(batch)
            for asked in batch:
                self._settle(asked)
            self._running = [asked for asked in self._running if not asked.ended]
            self._read()
        return entered

    def _read(self) -> None:
        for asked in self._unread:
            queue = self._queues.setdefault(asked.client, [])
            others = [self.counters[name] for name, waiting in self._queues.items() if waiting and name != asked.client]
            mine = self.counters.setdefault(asked.client, 0.0)
            if not queue and others:
                self.counters[asked.client] = max(mine, min(others))
            queue.append(asked)
        self._unread = []

    def _enter(self) -> list[Asked]:
        entering: list[Asked] = []
        while waiting := [client for client in self.counters if self._queues[client]]:
            client = min(waiting, key=self.counters.__getitem__)
            asked = self._queues[client][0]
            if not self._fits([*self._running, *entering], asked):
                break
            entering.append(self._queues[client].pop(0))
            asked.predicted = self._average.get(client, 0.0) if self._predicts else 0.0
            self.counters[client] += self._price(asked.prompt, asked.predicted)
        return entering

    def _fits(self, batch: list[Asked], asked: Asked) -> bool:
        sizes = [(r.output - r.made - 1, r.prompt + r.made) for r in batch if r.made]
        sizes += [(r.output - 1, r.prompt + 1) for r in [*batch, asked] if not r.made]
        sizes.sort(reverse=True)
        most = max(left * (n + 1) + sum(held for _, held in sizes[: n + 1]) for n, (left, _) in enumerate(sizes))
        return most < self._capacity - ADAPTER * len({r.client for r in [*batch, asked]})

    def _pay(self, batch: Iterable[Asked]) -> None:
        for asked in batch:
            if asked.made > asked.predicted:
                latest = self._price(asked.prompt, asked.made) - self._price(asked.prompt, asked.made - 1)
                self.counters[asked.client] += latest

    def _settle(self, asked: Asked) -> None:
        if not asked.ended:
            return
        if asked.made < asked.predicted:
            paid, due = (self._price(asked.prompt, n) for n in (asked.predicted, asked.made))
            self.counters[asked.client] -= paid - due
        old = self._average.get(asked.client, 0.0)
        self._average[asked.client] = (old * (WINDOW - 1) + asked.made) / WINDOW if old else asked.made
