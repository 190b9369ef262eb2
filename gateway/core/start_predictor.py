"""When a call will start: from the calls that wait before it at its worker, and how fast calls start there.

Workers are fair, so a client's calls start at the rate of its share, whatever others send; and no call waits longer
than all that wait now. Both rates are measured, over the last starts while calls waited, so they hold for any policy,
weights and engine. A client that has nothing waiting is expected to wait as long as first calls of clients did lately.
"""

from collections import deque
from dataclasses import dataclass, field

FEWEST, FEW, MOST = 3, 16, 1024  # starts over which a rate is measured
RECENT = 10.0  # seconds after which a start counts no more, beyond FEW
FIRSTS = 4  # first calls over which their wait is averaged
SOON = 0.2  # seconds: within this, or CLOSE of the wait, a prediction is right
CLOSE = 0.25
MOST_WORKERS = 1024  # processes whose starts are remembered
# Part of the predicted wait that a call surely waits: with less time left it is refused at once.
SURE = 0.5
SHORTEST_RETRY, LONGEST_RETRY = 0.1, 60.0  # seconds


@dataclass(slots=True)
class _Queue:
    """Calls that wait, and the times of the last starts since the queue was last empty."""

    waiting: dict[str, float] = field(default_factory=dict)  # call -> when it began to wait; the oldest first
    starts: deque[float] = field(default_factory=lambda: deque(maxlen=MOST))

    def wait(self, now: float) -> float | None:
        """Return the seconds until a call starts that comes last; None before there is a rate."""
        interval = self.interval(now)
        return None if interval is None else max(0.0, interval * (1 + len(self.waiting)) - (now - self.starts[-1]))

    def interval(self, now: float) -> float | None:
        """Return the seconds between starts, at least what the current interval implies; None before one ended."""
        starts = self.starts
        while len(starts) > FEW and starts[1] < now - RECENT:
            starts.popleft()
        if len(starts) < FEWEST:
            return None
        return max((starts[-1] - starts[0]) / (len(starts) - 1), (now - starts[0]) / len(starts))

    def start(self, now: float) -> None:
        """Note a start, unless nothing has waited for long: then it is arrivals that limit the rate, not the worker."""
        if now - next(iter(self.waiting.values())) < SOON:
            self.starts.clear()
        else:
            self.starts.append(now)

    def join(self, call: str, now: float) -> None:
        if not self.waiting:
            self.starts.clear()
        self.waiting[call] = now


class StartPredictor:
    """The calls that wait for their start at one worker; `now` is in seconds and never decreases."""

    def __init__(self) -> None:
        self._all = _Queue()
        self._clients: dict[str, _Queue] = {}  # those with calls that wait
        self._first = 0.0  # the wait of first calls, a moving average

    def predict(self, client: str, now: float) -> float:
        """Return the seconds until a call of `client` will start that begins to wait now."""
        if not self._all.waiting:
            return 0.0
        of_all, found = self._all.wait(now), self._clients.get(client)
        own = self._first if found is None else found.wait(now)
        if own is None:
            own = self._first * (1 + (len(found.waiting) if found is not None else 0))
        return own if of_all is None else min(own, of_all)

    def turn(self, client: str, now: float) -> float | None:
        """Return the seconds between starts of the client's calls; None if none waits, or none has started yet."""
        found = self._clients.get(client)
        return None if found is None else found.interval(now)

    def waits(self, client: str, call: str, now: float) -> float:
        """Record that a call begins to wait; return its predicted wait in seconds."""
        predicted = self.predict(client, now)
        for queue in (self._all, self._clients.setdefault(client, _Queue())):
            queue.join(call, now)
        return predicted

    def started(self, client: str, call: str, now: float) -> None:
        """Record that a call has started."""
        found = self._clients.get(client)
        if found is None or call not in found.waiting:
            return
        if not found.starts:
            self._first += (now - found.waiting[call] - self._first) / FIRSTS
        for queue in (self._all, found):
            queue.start(now)
        self.left(client, call)

    def left(self, client: str, call: str) -> None:
        """Record that a call waits no more, whether it has started or not."""
        found = self._clients.get(client)
        if found is None or found.waiting.pop(call, None) is None:
            return
        del self._all.waiting[call]
        if not found.waiting:
            del self._clients[client]

    def check_invariants(self) -> None:
        """Raise AssertionError unless every call that waits is its client's."""
        waiting = {call for queue in self._clients.values() for call in queue.waiting}
        assert waiting == self._all.waiting.keys(), f"{waiting} of clients, {list(self._all.waiting)} of all"
        assert all(queue.waiting for queue in self._clients.values()), "a client without calls is kept"


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
        """Record that a call has started."""
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
        """Raise AssertionError when a worker's queue is impossible."""
        for found in self._predictors.values():
            found.check_invariants()
