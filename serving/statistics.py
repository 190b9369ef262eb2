"""Statistics of fairness and latency over recorded values."""

import math
from collections.abc import Sequence


def jain_index(values: Sequence[float]) -> float:
    """Return Jain's fairness index, in (0, 1]: 1 if all values are equal, 1/n if one of n values is all of the sum.

    Return 1 if all values are 0. Raise ValueError if there are no values or one is negative.
    """
    if not values or min(values) < 0:
        raise ValueError(f"needs at least one value and none negative, got {list(values)!r}")
    largest = max(values)
    if largest == 0:
        return 1.0
    scaled = [value / largest for value in values]  # keeps tiny values from underflowing when squared
    return sum(scaled) ** 2 / (len(scaled) * sum(value * value for value in scaled))


def percentile(values: Sequence[float], q: float) -> float:
    """Return the q-th percentile, interpolated linearly between ranks.

    Raise ValueError if there are no values or `q` is not between 0 and 100.
    """
    if not values or not 0 <= q <= 100:
        raise ValueError(f"needs at least one value and 0 <= q <= 100, got {len(values)} values, q={q}")
    ordered = sorted(values)
    rank = (len(ordered) - 1) * q / 100
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)
