"""The waits of a gateway's calls: what is predicted for each, at its worker, and what the prediction is used for."""

from gateway.core.start_predictor import StartPredictor

MOST_WORKERS = 1024  # processes whose starts are remembered
# Part of the predicted wait that a call surely waits: with less time left it is refused at once.
SURE = 0.5
SHORTEST_RETRY, LONGEST_RETRY = 0.1, 60.0  # seconds


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
