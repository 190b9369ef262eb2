"""How fair and how fast a run was: figures over recorded service and latencies."""

import math
from collections.abc import Sequence


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
