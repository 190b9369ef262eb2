"""The papers' measures, computed from runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from math import ceil
from statistics import fmean, pvariance

from serving.cost import MICRO, Cost, WeightedTokens
from serving.statistics import jain_index, percentile
from simulation.measures import received
from simulation.run import CallResult, SimulationRun

T = 30  # half the window, seconds (VTC section 5.1)
MEASURED_SECONDS, POINTS = 600, 20  # as in VTC's tables
Curve = Sequence[float]


def actual(run: SimulationRun, client: str) -> list[float]:
    """Return the client's service by the workers' ledgers at the end of each second; cached input is free."""
    known, curve, value = run.actual.get(client, {}), [], 0.0
    for second in range(int(run.seconds) + 2):
        value = known.get(second, value)
        curve.append(value)
    return curve


def rate_around(curve: Curve, second: int) -> float:
    """Return the service rate around a second: W(t - T, t + T) / 2T."""
    return (curve[min(second + T, len(curve) - 1)] - curve[max(second - T, 0)]) / (2 * T)


def gap(curves: Mapping[str, Curve]) -> list[float]:
    """Return the largest difference of accumulated service between two clients, by second (VTC section 5.1)."""
    return [max(values) - min(values) for values in zip(*curves.values(), strict=True)]


def gap_since(curves: Mapping[str, Curve], start: int) -> list[float]:
    """Return the gap by second of the service received after second `start`.

    The theorems hold for intervals in which all clients are backlogged. Before there is a queue, a client that sends
    more receives more.
    """
    return gap({client: [max(value - curve[start], 0.0) for value in curve] for client, curve in curves.items()})


def all_backlogged(run: SimulationRun) -> list[tuple[int, int]]:
    """Return the intervals, in seconds, in which every client always had a request in the queue (VTC Definition
    4.1)."""
    common = [(0.0, run.seconds)]
    for client in run.clients:
        waiting = _merged((r.arrival, r.ended if r.admitted is None else r.admitted) for r in run.of(client))
        common = [(max(a, c), min(b, d)) for a, b in common for c, d in waiting if max(a, c) < min(b, d)]
    return [(ceil(a), int(b)) for a, b in common if ceil(a) < int(b)]


def _merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Merge overlapping intervals."""
    merged: list[tuple[float, float]] = []
    for start, stop in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    return merged


def gap_within(curves: Mapping[str, Curve], start: int, stop: int) -> float:
    """Return the largest difference of two clients' service in any part of these seconds (VTC Theorem 4.4)."""
    apart = [
        [a - b for a, b in zip(first[start : stop + 1], second[start : stop + 1], strict=True)]
        for first, second in combinations(curves.values(), 2)
    ]
    return max(max(values) - min(values) for values in apart)


def service_difference(run: SimulationRun, cost: Cost | None = None) -> tuple[float, float, float]:
    """Return maximum, mean and variance of VTC's service difference (section 5.1).

    It is a sum over clients: how much less each one receives than the client that receives most, or than it asks for if
    that is smaller. As the authors computed Tables 2 to 6, rates are taken in 19 windows of a minute, evenly over ten
    minutes, and a request's service is spread evenly between its first and last token. Received service is counted in
    `cost`, demand always in weighted tokens; refused requests count for neither. The authors' published measurements
    give the printed figures.
    """
    answered = [r for r in run.records if r.first is not None and r.ended > r.first]
    price, clients = cost or WeightedTokens(), run.clients
    spread = [(r, r.first or 0.0, _service(r, price) / (r.ended - (r.first or 0.0))) for r in answered]
    differences = []
    for number in range(1, POINTS):
        start = number * (MEASURED_SECONDS - T) / POINTS
        stop = start + 2 * T
        got, asked = dict.fromkeys(clients, 0.0), dict.fromkeys(clients, 0.0)
        for record, first, rate in spread:
            got[record.client] += rate * max(min(stop, record.ended) - max(start, first), 0.0) / (2 * T)
            if start <= record.arrival <= stop:
                asked[record.client] += _service(record, WeightedTokens()) / (2 * T)
        most = max(got.values())
        differences.append(sum(min(most - got[client], abs(asked[client] - got[client])) for client in clients))
    return max(differences), fmean(differences), pvariance(differences)


def _service(record: CallResult, price: Cost) -> float:
    """Return the total cost of an answered request."""
    extend = price.extend(record.input_tokens, 0)
    return (extend + price.decode(record.output_tokens, record.input_tokens, 0)) / MICRO


def response_times(records: Iterable[CallResult], seconds: float) -> tuple[list[float], list[float]]:
    """Return times, and the mean first-token latency of the calls that arrived within T of each, where there are
    any."""
    waits = sorted((record.arrival, record.first - record.arrival) for record in records if record.first is not None)
    xs, ys = [], []
    for time in range(0, int(seconds) + 1, T // 3):
        near = [wait for arrival, wait in waits if time - T <= arrival < time + T]
        if near:
            xs.append(float(time))
            ys.append(fmean(near))
    return xs, ys


def mean_wait(records: Iterable[CallResult]) -> float:
    """Return the mean first-token latency in seconds; raises StatisticsError when no call was answered."""
    return fmean(record.first - record.arrival for record in records if record.first is not None)


def common_span(run: SimulationRun) -> tuple[float, float] | None:
    """Return the interval in which all clients are active, or None.

    It lasts from the last client's first arrival to the first client's last end.
    """
    start = max(min(record.arrival for record in run.of(client)) for client in run.clients)
    stop = min(max(record.ended for record in run.of(client)) for client in run.clients)
    return (start, stop) if start < stop else None


def fairness(run: SimulationRun) -> float:
    """Return Jain's index of service rates while all clients are active (DLPM section 6.1), or 1 if they never are."""
    span = common_span(run)
    if span is None:
        return 1.0
    curves = (received(run, client) for client in run.clients)
    return jain_index([curve[int(span[1])] - curve[int(span[0])] for curve in curves])


def program_times(run: SimulationRun, client: str) -> list[float]:
    """Return the seconds from first arrival to last end of each of the client's interactions."""
    spans: dict[str, tuple[float, float]] = {}
    for record in run.of(client):
        begin, end = spans.get(record.interaction, (record.arrival, record.ended))
        spans[record.interaction] = min(begin, record.arrival), max(end, record.ended)
    return [end - begin for begin, end in spans.values()]


def over(
    run: SimulationRun, clients: Iterable[str], times: Callable[[SimulationRun, str], list[float]], percent: float
) -> float:
    """Return the mean over `clients` of a percentile of their `times` (DLPM Figure 7)."""
    return fmean(percentile(times(run, client), percent) for client in clients)


def first_token_times(run: SimulationRun, client: str) -> list[float]:
    """Return the client's first-token latencies in seconds."""
    return [record.first - record.arrival for record in run.of(client) if record.first is not None]
