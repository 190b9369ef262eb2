"""Max-min fair allocation of one capacity over clients' demand, by water-filling.

Each client gets the smaller of its demand and the level. The level is the same for all clients whose demand is not met,
and as high as the capacity allows (Bertsekas and Gallager, Data Networks, section 6.5.2).
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate


class WaterFilling:
    """The allocation of `capacity` over `asks` by client; both are in cost units and above 0."""

    def __init__(self, asks: Mapping[str, float], capacity: float) -> None:
        self._asks = asks
        self._capacity = capacity
        self._ordered = sorted(asks.values())
        self._met = list(accumulate(self._ordered, initial=0.0))  # prefix sums of the ordered asks
        self.level = self._level(self._used)

    @property
    def clients(self) -> Iterable[str]:
        """The clients with demand in this window."""
        return self._asks

    def granted(self, client: str) -> float:
        """Return the part of the capacity that `client` gets, in cost units."""
        return min(self._asks.get(client, 0.0), self.level)

    def is_met(self, client: str) -> bool:
        """Return whether `client` asks for at most its fair share."""
        return self._asks.get(client, 0.0) <= self.level

    def open_to(self, client: str) -> float:
        """Return the most that `client` could get with any demand, while the demand of the others stays the same."""
        ask = self._asks.get(client, 0.0)
        level = self._level(lambda level: self._used(level) - min(ask, level) + level)
        # If the level is above all asks, the client can get the capacity that the others leave.
        return self._capacity - (self._met[-1] - ask) if level == math.inf else level

    def _used(self, level: float) -> float:
        """Return the capacity that all clients use together at this level."""
        met = bisect_left(self._ordered, level)
        return self._met[met] + (len(self._ordered) - met) * level

    def _level(self, used: Callable[[float], float]) -> float:
        """Return the level at which `used`, linear between two asks, equals the capacity; infinite above all asks."""
        above = bisect_left(self._ordered, self._capacity, key=used)
        if above == len(self._ordered):
            return math.inf
        low = self._ordered[above - 1] if above else 0.0
        high = self._ordered[above]
        return low + (self._capacity - used(low)) * (high - low) / (used(high) - used(low))
