"""Pools of growing size under one scheduler, with a proportional number of users."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lab.bench.scaling.conversations import Conversations
from lab.bench.scaling.measure import POOL, measure
from lab.bench.scaling.tally import Tally

COLUMNS = (
    "route",
    "workers",
    "users",
    "calls",
    "hit rate",
    "busiest worker / mean",
    "TTFT p99 s",
    "scheduler CPU us/call",
    "bytes/call",
    "simulated calls/min",
    "CPU s",
    "peak GB",
)
ROUTES = ("doubleq", "least-delay", "preble", "least-loaded")


@dataclass(frozen=True, slots=True)
class Row:
    """One route on one pool, as a row of the table."""

    route: str
    workload: Conversations

    def run(self) -> str:
        """Simulate it and return the row's text."""
        w = self.workload
        f = measure(replace(POOL, route=self.route), w, Tally(w.workers * w.calls))
        return (
            f"| {self.route} | {w.workers:,} | {w.users:,} | {f.calls:,} | {f.hit_rate:.2f} | {f.busiest:.1f} | "
            f"{f.wait:.2f} | {f.scheduler_us:.0f} | {f.bytes_per_call:,.0f} | {f.calls_per_minute:,.0f} | "
            f"{f.cpu:,.0f} | {f.memory / 1e9:.2f} |"
        )


def rows(workers: Iterable[int], calls: int, users: int, routes: Iterable[str]) -> Iterator[Row]:
    """Yield a row per pool and route; `calls` and `users` are per worker."""
    for pool in workers:
        for route in routes:
            yield Row(route, Conversations(pool, calls, pool * users))
