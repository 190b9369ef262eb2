"""Max-min fair allocation of one capacity over what clients ask for, by water-filling.

Everybody gets what they ask for or, if that is less, the level: the same for all whose asks are not met, and as high as
the capacity allows (Bertsekas and Gallager, Data Networks, section 6.5.2).
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate


class WaterFilling:
    """The allocation of `capacity` over `asks`, by client; both in cost units and above 0."""

    def __init__(self, asks: Mapping[str, float], capacity: float) -> None:
        self._asks = asks
        self._capacity = capacity
        self._ordered = sorted(asks.values())
        self._met = list(accumulate(self._ordered, initial=0.0))  # the sum of the first so many asks
        self.level = self._level(self._used)

    @property
    def clients(self) -> Iterable[str]:
        """Who asks for something."""
        return self._asks

    def granted(self, client: str) -> float:
        """What `client` gets of the capacity, cost units."""
        return min(self._asks.get(client, 0.0), self.level)

    def is_met(self, client: str) -> bool:
        """Whether `client` asks for no more than its fair share."""
        return self._asks.get(client, 0.0) <= self.level

    def open_to(self, client: str) -> float:
        """The most that `client` would get, whatever it asked for, while the others ask for what they do."""
        ask = self._asks.get(client, 0.0)
        level = self._level(lambda level: self._used(level) - min(ask, level) + level)
        # Above all asks, the capacity that the others leave.
        return self._capacity - (self._met[-1] - ask) if level == math.inf else level

    def _used(self, level: float) -> float:
        """What all get together if the level is this."""
        met = bisect_left(self._ordered, level)
        return self._met[met] + (len(self._ordered) - met) * level

    def _level(self, used: Callable[[float], float]) -> float:
        """Where `used`, which is linear between two asks, reaches the capacity; infinite if that is above all asks."""
        above = bisect_left(self._ordered, self._capacity, key=used)
        if above == len(self._ordered):
            return math.inf
        low = self._ordered[above - 1] if above else 0.0
        high = self._ordered[above]
        return low + (self._capacity - used(low)) * (high - low) / (used(high) - used(low))
