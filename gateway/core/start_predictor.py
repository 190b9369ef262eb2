"""When a call will start: from how often the client's calls start at the worker, and how many of them wait before it.

Workers are fair, so a client's calls start at the rate of its share, whatever others send. That rate is measured: while
calls of the client wait, over their last starts; before, over its last waits, each divided by the call's place among
the client's own. So it holds for any policy, weights and engine.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

WAITS = 4  # last waits over which a client's turn is averaged
PRIOR = 6  # starts for which that average counts when a queue begins
RECENT = 30.0  # seconds after which a start counts 1 / e
SOON = 0.2  # seconds: within this, or CLOSE of the wait, a prediction is right
CLOSE = 0.25
MOST_WORKERS = 1024  # processes whose starts are remembered
MOST_CLIENTS = 256  # of a process, whose turns are remembered while none of their calls waits
# Part of the predicted wait that a call surely waits: with less time left it is refused at once.
SURE = 0.5
SHORTEST_RETRY, LONGEST_RETRY = 0.1, 60.0  # seconds


class _Wait(NamedTuple):
    """A call that waits."""

    since: float
    place: int  # among the client's own, from 1


@dataclass(slots=True)
class _Queue:
    """A client's calls that wait, and its starts since the queue was last empty; older ones count less."""

    turn: float  # seconds, of the last waits
    now: float  # of the last change
    waiting: dict[str, _Wait] = field(default_factory=dict)  # the oldest first
    starts: float = 0.0
    seconds: float = 0.0

    def advance(self, now: float) -> None:
        """Let the time pass."""
        kept = math.exp((self.now - now) / RECENT)
        self.starts *= kept
        self.seconds = self.seconds * kept + RECENT * (1 - kept)
        self.now = now

    def interval(self, now: float) -> float:
        """Return the seconds between two starts."""
        self.advance(now)
        return (PRIOR * self.turn + self.seconds) / (PRIOR + self.starts)


class StartPredictor:
    """The calls that wait for their start at one worker; `now` is in seconds and never decreases."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}  # of clients with calls that wait
        self._usual: dict[str, float] = {}  # in seconds, of clients whose calls have started; the newest last
        self._first = 0.0  # seconds that first calls of clients waited, a moving average

    def predict(self, client: str, now: float) -> float:
        """Return the seconds until a call of `client` will start that begins to wait now."""
        if not self._queues:
            return 0.0
        found = self._queues.get(client)
        return self._usual_turn(client) if found is None else found.interval(now) * (1 + len(found.waiting))

    def turn(self, client: str, now: float) -> float | None:
        """Return the seconds between starts of the client's calls; None if none waits, or none has started yet."""
        found = self._queues.get(client)
        return None if found is None or client not in self._usual else found.interval(now)

    def waits(self, client: str, call: str, now: float) -> float:
        """Record that a call begins to wait; return its predicted wait in seconds."""
        predicted = self.predict(client, now)
        queue = self._queues.setdefault(client, _Queue(self._usual_turn(client), now))
        queue.waiting[call] = _Wait(now, 1 + len(queue.waiting))
        return predicted

    def started(self, client: str, call: str, now: float) -> None:
        queue = self._queues.get(client)
        if queue is None or call not in queue.waiting:
            return
        since, place = queue.waiting[call]
        queue.advance(now)
        queue.starts += 1
        queue.turn += ((now - since) / place - queue.turn) / WAITS
        self._usual.pop(client, None)
        self._usual[client] = queue.turn
        if len(self._usual) > MOST_CLIENTS:
            del self._usual[next(iter(self._usual))]
        if place == 1:
            self._first += (now - since - self._first) / WAITS
        self.left(client, call)

    def left(self, client: str, call: str) -> None:
        """Record that a call waits no more, whether it has started or not."""
        queue = self._queues.get(client)
        if queue is None or queue.waiting.pop(call, None) is None:
            return
        if not queue.waiting:
            del self._queues[client]

    def _usual_turn(self, client: str) -> float:
        return self._usual.get(client, self._first)

    def check_invariants(self) -> None:
        assert all(queue.waiting for queue in self._queues.values()), "a client without calls is kept"
        assert all(queue.seconds >= 0 and queue.starts >= 0 for queue in self._queues.values()), "a rate below 0"
        assert len(self._usual) <= MOST_CLIENTS, f"{len(self._usual)} clients are remembered"


def is_close(predicted: float, waited: float) -> bool:
    """Return whether a prediction was right: within CLOSE of the wait, or within SOON."""
    return abs(predicted - waited) <= max(SOON, CLOSE * waited)


class CallWaits:
    """The calls that wait for their start, by worker process; `now` is in seconds and never decreases."""

    def __init__(self) -> None:
        self._predictors: dict[str, StartPredictor] = {}

    def is_hopeless(self, client: str, worker: str, seconds: float, now: float) -> bool:
        """Return whether a call that is placed now will surely not start within `seconds`."""
        found = self._predictors.get(worker)
        return found is not None and SURE * found.predict(client, now) > seconds

    def waits(self, client: str, worker: str, call: str, now: float) -> float:
        """Record that a call waits at a worker from now on; return the seconds until its predicted start."""
        found = self._predictors.get(worker)
        if found is None:
            if len(self._predictors) >= MOST_WORKERS:
                del self._predictors[next(iter(self._predictors))]
            found = self._predictors[worker] = StartPredictor()
        return found.waits(client, call, now)

    def started(self, client: str, worker: str, call: str, now: float) -> None:
        if (found := self._predictors.get(worker)) is not None:
            found.started(client, call, now)

    def left(self, client: str, worker: str, call: str) -> None:
        """Record that a call waits no more at a worker; nothing changes if it did not wait."""
        if (found := self._predictors.get(worker)) is not None:
            found.left(client, call)

    def retry_after(self, client: str, default: float, now: float) -> float:
        """Return the seconds until the next of the client's calls starts, wherever that is; `default` if none waits.

        One that was refused because too many are open has a place then.
        """
        turns = [found.turn(client, now) for found in self._predictors.values()]
        rate = sum(1 / max(turn, 1e-3) for turn in turns if turn is not None)
        return min(max(1 / rate, SHORTEST_RETRY), LONGEST_RETRY) if rate else default

    def check_invariants(self) -> None:
        for found in self._predictors.values():
            found.check_invariants()
