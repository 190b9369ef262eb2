"""How the one scheduler scales: simulated pools of 8 to 1,000 workers, with users in proportion.

    python -m bench.scaling [--workers 8,64,256,1000] [--calls 120] [--users 10]

Every user converses (a system prompt that all share, four turns); every eighth user sends four times as much. The load
is the same per worker in every row. Printed are what the cores do under virtual time (hit rate, balance, wait) and what
it costs here: the scheduler's CPU per call, the bytes that dispatches and reports would take, and how many calls are
simulated per minute.
"""

import argparse
import os
from dataclasses import dataclass, replace
from multiprocessing import Pool

from bench.machine import commit, processor
from bench.scaling.crowd import Conversations
from bench.scaling.measure import POOL, Figures, measure

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


@dataclass(frozen=True, slots=True)
class Row:
    """One route on one pool."""

    route: str
    workload: Conversations

    def run(self) -> Figures:
        """In whatever process."""
        return measure(replace(POOL, route=self.route), self.workload)

    def text(self, f: Figures) -> str:
        """Of the table."""
        w = self.workload
        return (
            f"| {self.route} | {w.workers:,} | {w.users:,} | {f.calls:,} | {f.hit_rate:.2f} | {f.busiest:.1f} | "
            f"{f.wait:.2f} | {f.scheduler_us:.0f} | {f.bytes_per_call:,.0f} | {f.calls_per_minute:,.0f} | "
            f"{f.cpu:,.0f} | {f.memory / 1e9:.2f} |"
        )


def main() -> None:
    """One row per size of the pool and route."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="8,64,256,1000")
    parser.add_argument("--calls", type=int, default=120, help="per worker, 120 a minute")
    parser.add_argument("--users", type=int, default=10, help="per worker")
    parser.add_argument("--routes", default="doubleq,preble,least-loaded")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="in parallel (default: one per core)")
    args = parser.parse_args()
    print(f"{processor()}; commit {commit()}; {args.calls} calls and {args.users} users per worker")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    rows = [
        Row(route, Conversations(workers, args.calls, workers * args.users))
        for workers in map(int, args.workers.split(","))
        for route in args.routes.split(",")
    ]
    with Pool(args.processes, maxtasksperchild=1) as pool:  # so that each row's memory is its own
        for row, figures in zip(rows, pool.imap(Row.run, rows, chunksize=1), strict=True):
            print(row.text(figures), flush=True)


if __name__ == "__main__":
    main()
