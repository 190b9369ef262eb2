"""How unequal the service of users can become who all want more than the pool has, beside what is promised."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bench.scaling.flood import Flood
from bench.scaling.measure import measure
from bench.scaling.tally import PoolGap
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
SYSTEMS = (("doubleq", "dlpm"), ("per-client-round-robin", "vtc"), ("doubleq", "fcfs"))


def small_pool(route: str, policy: str) -> ClusterSpec:
    """Small workers: so few calls keep them busy for long enough."""
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
    """One system on one pool."""

    route: str
    policy: str
    workload: Flood

    def run(self) -> str:
        """Of the table."""
        w = self.workload
        tally = PoolGap(w.workers * w.calls, w.workers)
        f = measure(small_pool(self.route, self.policy), w, tally)
        promised = tally.bound is not None
        over_all, over_one = (f"{b:,.0f}" if promised else "none" for b in (w.workers * f.bound, f.bound))
        return (
            f"| {self.route} + {self.policy} | {w.workers:,} | {f.calls:,} | {tally.pool_gap / MICRO:,.0f} | "
            f"{over_all} | {f.gap:,.0f} | {over_one} | {f.hit_rate:.2f} | {f.busiest:.2f} |"
        )


def rows(workers: Iterable[int], calls: int) -> Iterator[Row]:
    """`calls` per worker."""
    for pool in workers:
        for route, policy in SYSTEMS:
            yield Row(route, policy, Flood(pool, calls, USERS))
