"""The service of clients over the last minutes: who received how much, beside whom.

Workers report sums that begin anew with each process, and clients come and go. Two figures per client make them
comparable. *Gained* is the service since the last observation; shares are computed from it. *Position* is the
service over weight in which clients that wait are compared with their siblings: with all others, or with the users of
their tenant where the workers are fair among tenants. As with the counters of VTC (Algorithm 2, lines 8-13), a client
that joins begins at least at the position of the least served sibling that waits: no client is owed service for the
time in which it asked for nothing.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

HISTORY_SECONDS = 240.0
TOLERANCE = 1e-6


class ClientSample(NamedTuple):
    """The reported sums of one client: service in cost units, before and after division by its weight."""

    service: float
    weighted: float
    is_busy: bool  # it has requests that wait or run
    is_backlogged: bool  # it has requests that wait at every worker of a pool
    siblings: str = ""  # the name of the group of clients that are compared with each other


@dataclass(slots=True)
class ClientCourse:
    """One client as it is known now; `position` and what it `gained` since the last observation are in cost units."""

    sample: ClientSample
    position: float
    gained: float = 0.0


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """One observation: positions of the busy clients, and the least position of a backlogged one.

    `least` is None where no client is backlogged, and where clients of several groups are, which are not compared.
    """

    at: float  # seconds
    least: float | None
    bound: float | None  # the proved bound on the distance of two backlogged clients at that time, in cost units
    positions: dict[str, float]
    ahead: dict[str, float]  # of the backlogged clients: the position above that of the least sibling
    gained: dict[str, float]  # of the clients that were served since the last observation


class ServiceHistory:
    """The observations of the last HISTORY_SECONDS; `now` is in seconds and never decreases."""

    def __init__(self) -> None:
        self.points: deque[HistoryPoint] = deque()
        self.courses: dict[str, ClientCourse] = {}
        self._workers: frozenset[str] = frozenset()
        self._floors: dict[str, float] = {}  # group -> where a client that joins it begins

    def observe(
        self, now: float, workers: frozenset[str], clients: Mapping[str, ClientSample], bound: float | None
    ) -> None:
        """Record the sums over the processes `workers`; sums over other processes than before continue nothing."""
        continues = workers == self._workers
        self._workers = workers
        self.courses = {name: self._advanced(name, sample, continues) for name, sample in clients.items()}
        groups: dict[str, dict[str, float]] = {}  # positions of busy clients
        leasts: dict[str, float] = {}
        for name, course in self.courses.items():
            sample = course.sample
            if sample.is_busy:
                groups.setdefault(sample.siblings, {})[name] = course.position
            if sample.is_backlogged:
                leasts[sample.siblings] = min(leasts.get(sample.siblings, course.position), course.position)
        for group, busy in groups.items():
            # While no client is backlogged, none falls behind: clients that begin to wait later begin together.
            self._floors[group] = max(self._floor(group), leasts.get(group, max(busy.values())))
        least = next(iter(leasts.values())) if len(leasts) == 1 else None
        ahead = {
            name: course.position - leasts[course.sample.siblings]
            for name, course in self.courses.items()
            if course.sample.is_backlogged
        }
        positions = {name: position for busy in groups.values() for name, position in busy.items()}
        gained = {name: course.gained for name, course in self.courses.items() if course.gained}
        self.points.append(HistoryPoint(now, least, bound, positions, ahead, gained))
        while self.points[0].at < now - HISTORY_SECONDS:
            self.points.popleft()

    def shares(self, seconds: float) -> list[dict[str, float]]:
        """Return for each point the share that each client then busy had of what all gained in `seconds` before it."""
        points, total, first = list(self.points), Counter[str](), 0
        found: list[dict[str, float]] = []
        for point in points:
            total.update(point.gained)
            while points[first].at <= point.at - seconds:
                total.subtract(points[first].gained)
                first += 1
            gained = sum(total.values()) or 1.0
            found.append({name: max(0.0, total[name] / gained) for name in point.positions})
        return found

    def gains(self, seconds: float) -> dict[str, float]:
        """Return what each known client gained in the last `seconds`, in cost units."""
        total = dict.fromkeys(self.courses, 0.0)
        for point in reversed(self.points):
            if point.at <= self.points[-1].at - seconds:
                break
            for name in point.gained.keys() & total.keys():
                total[name] += point.gained[name]
        return total

    def check_invariants(self) -> None:
        times = [point.at for point in self.points]
        assert times == sorted(times), "observations out of order"
        assert not times or times[-1] - times[0] <= HISTORY_SECONDS, f"{times[-1] - times[0]} s of history"
        for name, course in self.courses.items():
            assert course.gained >= 0, f"{name} gained {course.gained}"
            if course.sample.is_backlogged:
                assert self.points[-1].ahead[name] >= -TOLERANCE, f"{name} is behind the least"

    def _floor(self, group: str) -> float:
        return self._floors.get(group, 0.0)

    def _advanced(self, name: str, sample: ClientSample, continues: bool) -> ClientCourse:
        known = self.courses.get(name)
        if known is None:
            return ClientCourse(sample, self._floor(sample.siblings))
        earlier, position, gained = known.sample, known.position, 0.0
        if _joins(earlier, sample):
            position = max(position, self._floor(sample.siblings))
        if continues:  # a worker that has forgotten an idle client begins its sums anew
            position += max(0.0, sample.weighted - earlier.weighted)
            gained = max(0.0, sample.service - earlier.service)
        return ClientCourse(sample, position, gained)


def _joins(earlier: ClientSample, sample: ClientSample) -> bool:
    begins = sample.is_busy and not earlier.is_busy
    return begins or (sample.is_backlogged and not earlier.is_backlogged)
