"""How close a simulated run is to the measured one: the four things that were promised."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simulation.call import Call
from simulation.cluster import Cluster
from simulation.reference import Row, Run
from simulation.step_time import Profile
from simulation.workload import OpenLoop

TOTAL, CURVE, FIRST_TOKEN = 0.05, 0.10, 0.20  # what counts as agreement
CURVE_POINTS = 200
OUTPUT_WEIGHT = 2

Span = tuple[float, float, int, int]  # first token, last token, input tokens, output tokens


@dataclass(frozen=True, slots=True)
class Agreement:
    """Relative errors; of clients, the worst. `longest`: does the same client wait longest for its first token?"""

    name: str
    total: float
    curve: float
    first_token: float
    longest: bool
    measured_seconds: float
    simulated_seconds: float
    refused: tuple[int, int]  # measured, simulated

    @property
    def holds(self) -> bool:
        """Everything within what was promised."""
        return self.total <= TOTAL and self.curve <= CURVE and self.first_token <= FIRST_TOKEN and self.longest


def compare(run: Run, profile: Profile) -> Agreement:
    """Simulate `run` and hold the result against it."""
    calls = run.calls()
    Cluster(run.spec(profile), OpenLoop(calls)).run()
    measured = [_measured_span(row) for row in run.rows]
    simulated = [_simulated_span(call, row) for call, row in zip(calls, run.rows, strict=True)]
    ends = _end(measured), _end(simulated)
    waits = _mean_waits(run.rows, [None if s is None else s[0] for s in measured])
    guesses = _mean_waits(run.rows, [None if s is None else s[0] for s in simulated])
    return Agreement(
        name=run.name,
        total=abs(ends[1] / ends[0] - 1),
        curve=max(_curve_error(run.rows, measured, simulated, client, max(ends)) for client in waits),
        first_token=max(abs(guesses.get(client, 0.0) / wait - 1) for client, wait in waits.items()),
        longest=max(waits, key=lambda c: waits[c]) == max(guesses, key=lambda c: guesses[c]),
        measured_seconds=ends[0],
        simulated_seconds=ends[1],
        refused=(measured.count(None), simulated.count(None)),
    )


def _measured_span(row: Row) -> Span | None:
    if row.latency is None:
        return None
    return row.arrival + row.first_token, row.arrival + row.latency, row.input_tokens, row.output_tokens


def _simulated_span(call: Call, row: Row) -> Span | None:
    if call.first_token_at is None or call.ended_at is None:
        return None
    return call.first_token_at, call.ended_at, row.input_tokens, row.output_tokens


def _end(spans: Iterable[Span | None]) -> float:
    return max(span[1] for span in spans if span is not None)


def _mean_waits(rows: Sequence[Row], first_tokens: Sequence[float | None]) -> dict[str, float]:
    """Mean first-token latency by client, of those with at least one answer."""
    waits: dict[str, list[float]] = {}
    for row, first in zip(rows, first_tokens, strict=True):
        if first is not None:
            waits.setdefault(row.client, []).append(first - row.arrival)
    return {client: sum(values) / len(values) for client, values in sorted(waits.items())}


def _curve_error(
    rows: Sequence[Row], measured: Sequence[Span | None], simulated: Sequence[Span | None], client: str, end: float
) -> float:
    """The largest distance of the client's two service curves at any time, relative to its measured total."""
    mine = [row.client == client for row in rows]
    ours = [span for span, own in zip(simulated, mine, strict=True) if own and span is not None]
    theirs = [span for span, own in zip(measured, mine, strict=True) if own and span is not None]
    times = [end * point / CURVE_POINTS for point in range(1, CURVE_POINTS + 1)]
    total = _service(theirs, end)
    return max(abs(_service(ours, time) - _service(theirs, time)) for time in times) / total


def _service(spans: Iterable[Span], time: float) -> float:
    """Input at the first token, output evenly from there to the last."""
    service = 0.0
    for first, last, inputs, outputs in spans:
        if first <= time:
            share = 1.0 if last <= time else (time - first) / (last - first)
            service += inputs + OUTPUT_WEIGHT * outputs * share
    return service
