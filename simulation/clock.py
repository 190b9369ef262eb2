"""Virtual time: a heap of events that run in order of time, and at equal times in the order in which they were
added."""

import heapq
import math
from collections.abc import Callable

Action = Callable[[], None]


class VirtualClock:
    """A clock whose `now`, in seconds since the start, advances only in `run`."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Action]] = []
        self._planned = 0

    def at(self, time: float, action: Action) -> None:
        """Plan `action` for `time`, or for now if `time` is in the past."""
        self._planned += 1
        heapq.heappush(self._events, (max(time, self.now), self._planned, action))

    def after(self, seconds: float, action: Action) -> None:
        """Plan `action` to run `seconds` after now."""
        self.at(self.now + seconds, action)

    def run(self, until: float = math.inf) -> None:
        """Execute events until none is left or the next one is later than `until` (seconds since the start)."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
