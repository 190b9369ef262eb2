"""One scheduler against several: divided by user over one pool, and by cells of workers with one scheduler each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from global_scheduler.core.dispatcher import Dispatcher
from lab.bench.scaling.conversations import Conversations
from lab.bench.scaling.flood import Flood
from lab.bench.scaling.gaps import USERS, small_pool
from lab.bench.scaling.measure import POOL, measure
from lab.bench.scaling.several import ByUser, ByUserInformed, Cells
from lab.bench.scaling.tally import PoolGap, Tally
from serving.cost import MICRO
from simulation.scheduler import make_dispatcher
from simulation.spec import ClusterSpec

COLUMNS = (
    "schedulers",
    "hit rate",
    "busiest worker / mean",
    "TTFT p99 s",
    "CPU us per call and scheduler",
    "gap over the pool",
    "worst worker's gap",
    "hit rate, flood",
)
Make = Callable[[ClusterSpec, int], Dispatcher]


def by_user(spec: ClusterSpec, count: int) -> Dispatcher:
    """Make `count` schedulers for parts of the users; see ByUser."""
    return ByUser([make_dispatcher(spec) for _ in range(count)])


def by_user_informed(spec: ClusterSpec, count: int) -> Dispatcher:
    """Make `count` schedulers for parts of the users; see ByUserInformed."""
    return ByUserInformed([make_dispatcher(spec) for _ in range(count)])


def cells(spec: ClusterSpec, count: int) -> Dispatcher:
    """Make `count` cells; see Cells. The quantum per cell is the sum of its workers' quanta."""
    size = spec.workers // count
    upper = replace(spec, route_quantum_tokens=size * spec.route_quantum_tokens)
    return Cells(make_dispatcher(upper), [make_dispatcher(spec) for _ in range(count)], size)


def one(spec: ClusterSpec, _count: int) -> Dispatcher:
    """Make the single scheduler with which the others are compared."""
    return make_dispatcher(spec)


KINDS: dict[str, tuple[Make, int]] = {
    "one": (one, 1),
    "2, by user": (by_user, 2),
    "4, by user": (by_user, 4),
    "2, by user, all reports to all": (by_user_informed, 2),
    "4, by user, all reports to all": (by_user_informed, 4),
    "2 cells": (cells, 2),
    "4 cells": (cells, 4),
    "8 cells": (cells, 8),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One way to divide the work, as a row of the table."""

    kind: str
    workers: int
    calls: int

    def run(self) -> str:
        """Simulate it and return the row's text."""
        make, count = KINDS[self.kind]
        expected = self.workers * self.calls

        def made(spec: ClusterSpec) -> Dispatcher:
            return make(spec, count)

        f = measure(POOL, Conversations(self.workers, self.calls, 10 * self.workers), Tally(expected), made)
        tally = PoolGap(expected, self.workers)
        flood = measure(small_pool("doubleq", "dlpm"), Flood(self.workers, self.calls, USERS), tally, made)
        return (
            f"| {self.kind} | {f.hit_rate:.3f} | {f.busiest:.1f} | {f.wait:.2f} | {f.scheduler_us / count:.0f} | "
            f"{tally.pool_gap / MICRO:,.0f} | {flood.gap:,.0f} | {flood.hit_rate:.3f} |"
        )


def rows(workers: int, calls: int) -> Iterator[Row]:
    """Yield a row per way to divide the work; `calls` is per worker."""
    for kind in KINDS:
        yield Row(kind, workers, calls)
