"""How fair and how fast a run was: figures over recorded service and latencies."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations


def jain_index(values: Sequence[float]) -> float:
    """Jain's fairness index, in (0, 1]: 1 when all get the same, 1/n when one gets all.

    Raises ValueError for no values or a negative one; 1 when all are zero (nobody got more than another).
    """
    if not values or min(values) < 0:
        raise ValueError(f"needs at least one value and none negative, got {list(values)!r}")
    largest = max(values)
    if largest == 0:
        return 1.0
    scaled = [value / largest for value in values]  # keeps tiny values from underflowing when squared
    return sum(scaled) ** 2 / (len(scaled) * sum(value * value for value in scaled))


def percentile(values: Sequence[float], q: float) -> float:
    """The q-th percentile (0..100), interpolated linearly between ranks; raises ValueError for no values or a bad q."""
    if not values or not 0 <= q <= 100:
        raise ValueError(f"needs at least one value and 0 <= q <= 100, got {len(values)} values, q={q}")
    ordered = sorted(values)
    rank = (len(ordered) - 1) * q / 100
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def service_gap(samples: Sequence[tuple[float, Mapping[str, float]]]) -> float:
    """The largest |W_f(t1, t2) - W_g(t1, t2)| of two clients over any interval in which both stay backlogged.

    `samples` are (time, cumulative service by client), in order of time; a client is in a sample while it is
    backlogged. O(pairs x samples). DLPM Theorem 4.1 and VTC Theorem 4.4 bound it.
    """
    clients = sorted({client for _, services in samples for client in services})
    return max((_pair_gap(samples, f, g) for f, g in combinations(clients, 2)), default=0.0)


def _pair_gap(samples: Sequence[tuple[float, Mapping[str, float]]], f: str, g: str) -> float:
    gap = 0.0
    for low, high in _difference_ranges(samples, f, g):
        gap = max(gap, high - low)
    return gap


def _difference_ranges(
    samples: Sequence[tuple[float, Mapping[str, float]]], f: str, g: str
) -> Iterator[tuple[float, float]]:
    """The range of W_f - W_g so far, after each sample, starting anew when either was not backlogged."""
    low, high = math.inf, -math.inf
    for _, services in samples:
        if f in services and g in services:
            difference = services[f] - services[g]
            low, high = min(low, difference), max(high, difference)
            yield low, high
        else:
            low, high = math.inf, -math.inf
