"""The capacity of a pool, which clients share: its service rate while it always has work."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from fairlead.errors import InvalidRequest
from simulation.call import SimulatedCall
from simulation.cluster import SimulatedCluster
from simulation.spec import ClusterSpec
from simulation.trace_replay import TraceReplay
from simulation.trace_rows import TraceRow
from simulation.what_if.fair_shares import asks_of

FEWEST_CALLS = 300  # calls of the trace to simulate, or all if there are fewer
MEASURED = 0.8  # share of the service that is measured: near the end the pool runs out of work
HALVINGS = 30  # steps of the bisection for the time by which this service is received
ROUNDS = 4  # simulated calls per call that the pool can run at once


class Backlog:
    """A workload of `rows` in order with `open_calls` open calls: the end of each call starts the next one."""

    def __init__(self, rows: Sequence[TraceRow], open_calls: int) -> None:
        self._calls = iter(TraceReplay([replace(row.at(0.0), after=()) for row in rows]).first())
        self._open_calls = open_calls

    def first(self) -> Iterable[SimulatedCall]:
        return islice(self._calls, self._open_calls)

    def ended(self, call: SimulatedCall) -> Iterable[SimulatedCall]:
        assert call.ended_at is not None
        for following in islice(self._calls, 1):
            following.arrival = call.ended_at
            yield following


def capacity_of(spec: ClusterSpec, rows: Sequence[TraceRow]) -> float:
    """Return the pool's capacity under a trace's requests, in cost units per second.

    Raises InvalidRequest when a worker accepts none of the requests.
    """
    asks = asks_of(rows, spec.worker)
    if not asks:
        limits = f"max_prompt_tokens {spec.worker.max_prompt_tokens}, kv_tokens {spec.worker.kv_tokens}"
        raise InvalidRequest(f"no request was answered: all {len(rows)} requests are too long ({limits})")
    in_hand = spec.workers * spec.worker.max_running
    numbers = list(islice(asks, max(FEWEST_CALLS, ROUNDS * in_hand)))
    run_log = SimulatedCluster(spec, Backlog([rows[number - 1] for number in numbers], in_hand)).run()
    answers = [
        (asks[numbers[call.number - 1]], call.first_token_at, call.ended_at)
        for call in run_log.calls
        if call.first_token_at is not None and call.ended_at is not None
    ]

    def received(second: float) -> float:
        return sum(ask.received(first, ended, second) for ask, first, ended in answers)

    enough = MEASURED * received(run_log.seconds)
    early, late = 0.0, run_log.seconds
    for _ in range(HALVINGS):
        middle = (early + late) / 2
        early, late = (early, middle) if received(middle) >= enough else (middle, late)
    return received(late) / late
