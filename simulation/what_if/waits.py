"""The waiting times of a group of calls."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulation.run import CallResult
from simulation.what_if.baseline import Baseline

NAMES = ("TTFT mean s", "TTFT p99 s", "latency mean s", "latency p99 s", "slowdown mean", "slowdown p99")


@dataclass(frozen=True, slots=True)
class Waits:
    """Times of `calls` calls that could be served: seconds to the first token and to the end, and slowdown.

    The slowdown is relative to the isolated baseline. Means cover the completed calls; in percentiles a refused call
    counts as infinite. All values are infinite when no call completed or the group is empty.
    """

    calls: int
    ttft_mean: float
    ttft_p99: float
    latency_mean: float
    latency_p99: float
    slowdown_mean: float
    slowdown_p99: float

    def cells(self) -> tuple[float | None, ...]:
        """Return the cells in the order of NAMES; for an empty group all are None."""
        times = (self.ttft_mean, self.ttft_p99, self.latency_mean, self.latency_p99)
        figures = (*times, self.slowdown_mean, self.slowdown_p99)
        return figures if self.calls else (None,) * len(figures)


def waits_of(records: Sequence[CallResult], baseline: Baseline) -> Waits:
    """Return the waiting times of `records` without the calls that have no baseline, which no worker accepts."""
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
    """Return the nearest-rank 99th percentile: interpolation is impossible with infinite values."""
    return sorted(seen)[math.ceil(0.99 * len(seen)) - 1] if seen else math.inf
