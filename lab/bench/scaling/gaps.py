"""The service gap between users whose demand exceeds the capacity, beside its bound."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from lab.bench.scaling.flood import Flood
from lab.bench.scaling.measure import measure
from lab.bench.scaling.tally import PoolGap
from serving.cost import MICRO
from simulation.spec import ClusterSpec, WorkerSpec

COLUMNS = (
    "route + workers' policy",
    "workers",
    "calls",
    "gap over the pool",
    "its bound",
    "worst worker's gap",
    "its bound",
    "hit rate",
    "busiest worker / mean",
)
USERS = 8
SYSTEMS = (("doubleq", "dlpm"), ("least-delay", "dlpm"), ("per-client-round-robin", "vtc"), ("doubleq", "fcfs"))
ROUTES = frozenset(route for route, _ in SYSTEMS)


def small_pool(route: str, policy: str) -> ClusterSpec:
    """Return a pool of small workers, which few calls keep busy for long enough."""
    worker = WorkerSpec(
        policy=policy,
        kv_tokens=8192,
        max_running=16,
        max_prompt_tokens=1024,
        max_output_tokens=512,
        decode_run=16,
    )
    return ClusterSpec(worker=worker, route=route, route_quantum_tokens=4096, report_seconds=1.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One system on one pool, as a row of the table."""

    route: str
    policy: str
    workload: Flood

    def run(self) -> str:
        """Simulate it and return the row's text."""
        w = self.workload
        tally = PoolGap(w.workers * w.calls, w.workers)
        f = measure(small_pool(self.route, self.policy), w, tally)
        promised = tally.bound is not None
        over_all, over_one = (f"{b:,.0f}" if promised else "none" for b in (w.workers * f.bound, f.bound))
        return (
            f"| {self.route} + {self.policy} | {w.workers:,} | {f.calls:,} | {tally.pool_gap / MICRO:,.0f} | "
            f"{over_all} | {f.gap:,.0f} | {over_one} | {f.hit_rate:.2f} | {f.busiest:.2f} |"
        )


def rows(workers: Iterable[int], calls: int, routes: Collection[str]) -> Iterator[Row]:
    """Yield a row per pool and system, but only of these routes; `calls` is per worker."""
    for pool in workers:
        for route, policy in SYSTEMS:
            if route in routes:
                yield Row(route, policy, Flood(pool, calls, USERS))
