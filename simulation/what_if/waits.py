"""How long a group of calls took."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulation.run import CallResult
from simulation.what_if.baseline import Baseline

NAMES = ("TTFT mean s", "TTFT p99 s", "latency mean s", "latency p99 s", "slowdown mean", "slowdown p99")


@dataclass(frozen=True, slots=True)
class Waits:
    """Of `calls` calls that could be served: seconds from arrival to first token and to the end, and the slowdown over
    the isolated baseline.

    Means are of those that were answered; in percentiles one that was refused is infinite. All are infinite when nobody
    was answered, and for no calls at all.
    """

    calls: int
    ttft_mean: float
    ttft_p99: float
    latency_mean: float
    latency_p99: float
    slowdown_mean: float
    slowdown_p99: float

    def cells(self) -> tuple[float | None, ...]:
        """In the order of NAMES; nothing for no calls."""
        times = (self.ttft_mean, self.ttft_p99, self.latency_mean, self.latency_p99)
        figures = (*times, self.slowdown_mean, self.slowdown_p99)
        return figures if self.calls else (None,) * len(figures)


def waits_of(records: Sequence[CallResult], baseline: Baseline) -> Waits:
    """Those without a baseline, which nobody could serve, are left out."""
    served = [record for record in records if record.number in baseline.alone]
    ttft, latency, slowdown = (_seen(served, of) for of in (_ttft, _latency, baseline.slowdown))
    return Waits(len(served), *(figure for seen in (ttft, latency, slowdown) for figure in (_mean(seen), _p99(seen))))


def _seen(records: Sequence[CallResult], of: Callable[[CallResult], float]) -> list[float]:
    return [of(record) if record.completed else math.inf for record in records]


def _ttft(record: CallResult) -> float:
    assert record.first is not None
    return record.first - record.arrival


def _latency(record: CallResult) -> float:
    return record.ended - record.arrival


def _mean(seen: Sequence[float]) -> float:
    answered = [value for value in seen if value < math.inf]
    return sum(answered) / len(answered) if answered else math.inf


def _p99(seen: Sequence[float]) -> float:
    """The least that 99 of 100 stay within: with infinite values there is nothing to interpolate."""
    return sorted(seen)[math.ceil(0.99 * len(seen)) - 1] if seen else math.inf
