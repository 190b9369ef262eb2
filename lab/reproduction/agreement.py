"""The distance between two runs, usually a simulated and a measured one, by four measures."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from lab.loops import OpenLoop
from lab.reproduction.reference import Row, Run
from simulation.call import SimulatedCall
from simulation.cluster import SimulatedCluster
from simulation.step_time import Profile

TOTAL, CURVE, FIRST_TOKEN = 0.05, 0.10, 0.20  # largest relative errors that count as agreement
TIE = 0.01
CURVE_POINTS = 200
OUTPUT_WEIGHT = 2

Span = tuple[float, float, int, int]  # first token, last token, input tokens, output tokens


@dataclass(frozen=True, slots=True)
class Slowest:
    """The client with the longest wait, the number of its answered requests, and its mean first-token latencies."""

    client: str
    requests: int
    measured: float
    simulated: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Relative errors, per client where they concern clients. `longest` is True if the same client waits longest.

    Two clients whose waits are within 1 % of the longest are indistinguishable, so both count as the longest.
    """

    name: str
    total: float
    curves: Mapping[str, float]
    waits: Mapping[str, float]
    requests: Mapping[str, int]  # answered, by client
    wait_overall: float  # error of the mean over all requests
    longest: bool
    slowest: tuple[Slowest, Slowest]  # by the measurement, by the simulation
    measured_seconds: float
    simulated_seconds: float
    refused: tuple[int, int]  # measured, simulated

    @property
    def curves_within(self) -> str:
        """The number of clients whose service curve agrees, over all clients."""
        return f"{sum(error <= CURVE for error in self.curves.values())}/{len(self.curves)}"

    @property
    def waits_within(self) -> str:
        """The number of clients whose first-token latency agrees, over all clients."""
        return f"{sum(error <= FIRST_TOKEN for error in self.waits.values())}/{len(self.waits)}"


def simulate(run: Run, profile: Profile) -> Run:
    """Return the same requests with their simulated times."""
    calls = run.calls()
    SimulatedCluster(run.spec(profile), OpenLoop(calls)).run()
    return replace(run, rows=tuple(_simulated(call, row) for call, row in zip(calls, run.rows, strict=True)))


def _simulated(call: SimulatedCall, row: Row) -> Row:
    if call.first_token_at is None or call.ended_at is None:
        return replace(row, latency=None)
    return replace(row, first_token=call.first_token_at - row.arrival, latency=call.ended_at - row.arrival)


def compare(run: Run, other: Run) -> Agreement:
    """Compare `other`, a run of the same requests, with `run`."""
    measured, simulated = [_span(row) for row in run.rows], [_span(row) for row in other.rows]
    ends = _end(measured), _end(simulated)
    waits, guesses = _mean_waits(run.rows, measured), _mean_waits(run.rows, simulated)
    slow, guessed = (max(means, key=means.__getitem__) for means in (waits, guesses))
    requests = Counter(row.client for row in run.rows if row.latency is not None)
    return Agreement(
        name=run.name,
        total=abs(ends[1] / ends[0] - 1),
        curves={client: _curve_error(run.rows, measured, simulated, client, max(ends)) for client in waits},
        waits={client: abs(guesses.get(client, 0.0) / wait - 1) for client, wait in waits.items()},
        requests=requests,
        wait_overall=abs(_overall_wait(run.rows, simulated) / _overall_wait(run.rows, measured) - 1),
        longest=waits[guessed] >= (1 - TIE) * waits[slow],
        slowest=(
            Slowest(slow, requests[slow], waits[slow], guesses.get(slow, 0.0)),
            Slowest(guessed, requests[guessed], waits[guessed], guesses[guessed]),
        ),
        measured_seconds=ends[0],
        simulated_seconds=ends[1],
        refused=(measured.count(None), simulated.count(None)),
    )


def _span(row: Row) -> Span | None:
    if row.latency is None:
        return None
    return row.arrival + row.first_token, row.arrival + row.latency, row.input_tokens, row.output_tokens


def _end(spans: Iterable[Span | None]) -> float:
    return max(span[1] for span in spans if span is not None)


def _waits(rows: Sequence[Row], spans: Sequence[Span | None]) -> Iterator[tuple[str, float]]:
    for row, span in zip(rows, spans, strict=True):
        if span is not None:
            yield row.client, span[0] - row.arrival


def _mean_waits(rows: Sequence[Row], spans: Sequence[Span | None]) -> dict[str, float]:
    """Return the mean first-token latency by client, for clients with at least one answer."""
    waits: dict[str, list[float]] = {}
    for client, wait in _waits(rows, spans):
        waits.setdefault(client, []).append(wait)
    return {client: fmean(values) for client, values in sorted(waits.items())}


def _overall_wait(rows: Sequence[Row], spans: Sequence[Span | None]) -> float:
    return fmean(wait for _, wait in _waits(rows, spans))


def _curve_error(
    rows: Sequence[Row], measured: Sequence[Span | None], simulated: Sequence[Span | None], client: str, end: float
) -> float:
    """Return the largest distance of the client's two service curves at any time, relative to its measured total."""
    mine = [row.client == client for row in rows]
    ours = [span for span, own in zip(simulated, mine, strict=True) if own and span is not None]
    theirs = [span for span, own in zip(measured, mine, strict=True) if own and span is not None]
    times = [end * point / CURVE_POINTS for point in range(1, CURVE_POINTS + 1)]
    total = _service(theirs, end)
    return max(abs(_service(ours, time) - _service(theirs, time)) for time in times) / total


def _service(spans: Iterable[Span], time: float) -> float:
    """Return the service by `time`: input counts at the first token, output evenly from there to the last token."""
    service = 0.0
    for first, last, inputs, outputs in spans:
        if first <= time:
            share = 1.0 if last <= time else (time - first) / (last - first)
            service += inputs + OUTPUT_WEIGHT * outputs * share
    return service
