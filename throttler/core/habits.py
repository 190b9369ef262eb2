"""What the interactions of an app usually do, learned from their calls: how long they pause, and what they hold.

Each tenant has its own habits, so that no tenant's calls change those of another.
"""

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field

SAMPLES = 256  # newest calls of a tenant's app
FEWEST = 16  # samples below which the prior holds
SUBJECTS = 4096  # apps of tenants; the one that was learned first is forgotten
USUAL = 0.9  # the part of pauses that is usual
PAUSES = (2.0, 5.0, 10.0, 20.0, 30.0)  # seconds: the next longer one counts, at most the last
PRIOR_PAUSE = 20.0
COMMON = 0.25  # of first calls find less in the cache than what counts as common to all interactions


class Quantile:
    """The value below which a part of the newest SAMPLES values lies."""

    def __init__(self, part: float) -> None:
        self._part = part
        self._newest: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, value: float) -> float | None:
        """Add a value in place of the oldest one, and return the quantile; None of fewer than FEWEST."""
        newest, ordered = self._newest, self._sorted
        if len(newest) == SAMPLES:
            del ordered[bisect_left(ordered, newest.popleft())]
        newest.append(value)
        insort(ordered, value)
        return ordered[int(self._part * (len(ordered) - 1))] if len(ordered) >= FEWEST else None


@dataclass(slots=True, eq=False)
class AppHabits:
    """The habits of one tenant's app; they are read more often than they change."""

    usual_pause: float = PRIOR_PAUSE  # seconds after which an interaction without a call in flight is idle
    common_tokens: int = 0  # at the start of prompts that interactions share, such as a system prompt
    mean_footprint: int = 0  # after a call
    _pauses: Quantile = field(default_factory=lambda: Quantile(USUAL))
    _found: Quantile = field(default_factory=lambda: Quantile(COMMON))
    _footprints: deque[int] = field(default_factory=deque)
    _sum: int = 0

    def paused(self, seconds: float) -> None:
        """Record the time between the end of a call and the next call of its interaction."""
        usual = self._pauses.add(seconds)
        if usual is not None:
            self.usual_pause = PAUSES[min(bisect_left(PAUSES, usual), len(PAUSES) - 1)]

    def began(self, cached_tokens: int) -> None:
        """Record how many tokens the first call of an interaction found in the cache."""
        self.common_tokens = int(self._found.add(cached_tokens) or 0)

    def held(self, tokens: int) -> None:
        """Record the footprint that an interaction has after a call."""
        if len(self._footprints) == SAMPLES:
            self._sum -= self._footprints.popleft()
        self._footprints.append(tokens)
        self._sum += tokens
        self.mean_footprint = self._sum // len(self._footprints)


class Habits:
    """The habits of all apps by tenant."""

    def __init__(self) -> None:
        self._apps: dict[tuple[str, str], AppHabits] = {}

    def of(self, tenant: str, app: str) -> AppHabits:
        found = self._apps.get((tenant, app))
        if found is None:
            if len(self._apps) == SUBJECTS:
                del self._apps[next(iter(self._apps))]
            found = self._apps[tenant, app] = AppHabits()
        return found
