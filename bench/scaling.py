"""How the one scheduler scales: simulated pools of 8 to 1,000 workers, with users in proportion.

    python -m bench.scaling [--workers 8,64,256,1000] [--calls 20] [--users 10]

Every user converses (a system prompt that all share, four turns); every eighth user sends four times as much. The load
is the same per worker in every row. Printed are what the cores do under virtual time (hit rate, balance, gap between
equal users) and what it costs here: the scheduler's CPU per call, the bytes that dispatches and reports would take, and
how many calls are simulated per minute.
"""

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from bench.machine import commit, processor
from fairlead.metrics import percentile
from simulation.call import Call
from simulation.cluster import Cluster
from simulation.prompts import Segments, output_run
from simulation.spec import ClusterSpec, WorkerSpec
from simulation.workload import ClosedLoop

SYSTEM, QUESTION, ANSWER, TURNS = 256, 64, 64, 4
SECONDS = 60.0
DIGEST_BYTES = 8
DISPATCH_BYTES = 120  # what a dispatch and its answer carry beside the digests
REPORT_BYTES = 60
BLOCK = 16
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
)


@dataclass(frozen=True, slots=True)
class Conversations:
    """`calls` per worker within SECONDS, by `users` per worker."""

    workers: int
    calls: int
    users: int

    def make(self) -> "Crowd":
        """See WorkloadSpec."""
        return Crowd(self)


class Crowd:
    """A workload: conversations start at random times; nothing is held before it is due."""

    def __init__(self, spec: Conversations) -> None:
        self._spec = spec
        self._loop = ClosedLoop()
        self._segments = Segments()
        self._system = self._segments.fresh(SYSTEM)
        self._rng = random.Random(1)
        self._numbers = 0

    def first(self) -> Iterator[Call]:
        """See Workload."""
        spec = self._spec
        users = spec.workers * spec.users
        weights = [4 if user % 8 == 0 else 1 for user in range(users)]
        starts = spec.workers * spec.calls // TURNS
        times = sorted(self._rng.uniform(0, SECONDS) for _ in range(starts))
        for time_, user in zip(times, self._rng.choices(range(users), weights, k=starts), strict=True):
            prompt = self._system + self._segments.fresh(QUESTION)
            call = self._call(f"user {user}", prompt, time_, 0)
            yield self._loop.follow(call, self._next)

    def ended(self, call: Call) -> list[Call]:
        """See Workload."""
        return list(self._loop.ended(call))

    def _next(self, ended: Call) -> list[Call]:
        if ended.stage + 1 == TURNS or not ended.completed:
            return []
        answer = output_run(ended.number, 0, ended.output_tokens)
        prompt = [*ended.prompt, *answer, *self._segments.fresh(QUESTION)]
        now = ended.arrival + ended.latency + self._rng.expovariate(0.5)
        return [self._loop.follow(self._call(ended.client, prompt, now, ended.stage + 1), self._next)]

    def _call(self, client: str, prompt: list[int], arrival: float, stage: int) -> Call:
        self._numbers += 1
        return Call(
            number=self._numbers,
            client=client,
            prompt=prompt,
            output_tokens=ANSWER,
            arrival=arrival,
            stage=stage,
        )


def main() -> None:
    """One row per size of the pool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="8,64,256,1000")
    parser.add_argument("--calls", type=int, default=20, help="per worker, within a minute")
    parser.add_argument("--users", type=int, default=10, help="per worker")
    parser.add_argument("--routes", default="doubleq,preble,least-loaded")
    args = parser.parse_args()
    print(f"{processor()}; commit {commit()}; {args.calls} calls and {args.users} users per worker")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for workers in map(int, args.workers.split(",")):
        for route in args.routes.split(","):
            _row(Conversations(workers, args.calls, args.users), route)


def _row(workload: Conversations, route: str) -> None:
    worker = WorkerSpec(kv_tokens=50_000, decode_run=16, max_running=128)
    spec = ClusterSpec(
        workers=workload.workers, worker=worker, route=route, route_quantum_tokens=16_384, report_seconds=1.0
    )
    cluster = Cluster(spec, workload.make())
    spent = _timed(cluster)
    began = time.process_time()
    journal = cluster.run()
    seconds = time.process_time() - began
    calls = journal.calls
    prompts = sum(call.prompt_tokens for call in calls)
    hits = sum(call.cached_tokens for call in calls) / prompts
    loads: dict[str, int] = {}
    for call in calls:
        loads[call.worker] = loads.get(call.worker, 0) + 1
    busiest = max(loads.values()) / (len(calls) / workload.workers)
    digests = prompts // BLOCK + 2 * sum((c.prompt_tokens - c.cached_tokens + c.output_tokens) // BLOCK for c in calls)
    reports = workload.workers * journal.seconds * REPORT_BYTES
    size = (digests * DIGEST_BYTES + reports) / len(calls) + DISPATCH_BYTES
    users = workload.workers * workload.users
    cost = spent[0] / len(calls) * 1e6
    wait = percentile([call.first_token_latency for call in calls if call.completed], 99)
    print(
        f"| {route} | {workload.workers:,} | {users:,} | {len(calls):,} | {hits:.2f} | {busiest:.1f} | {wait:.2f} | "
        f"{cost:.0f} | {size:,.0f} | {len(calls) / seconds * 60:,.0f} |",
        flush=True,
    )


def _timed(cluster: Cluster) -> list[float]:
    """CPU seconds in the scheduler's core from now on."""
    spent = [0.0]
    dispatcher = cluster.dispatcher
    for name in ("dispatch", "progressed", "ended", "accepted", "reported"):
        setattr(dispatcher, name, partial(_clocked, getattr(dispatcher, name), spent))
    return spent


def _clocked(call: object, spent: list[float], *args: object) -> object:
    began = time.process_time()
    try:
        return call(*args)  # type: ignore[operator]
    finally:
        spent[0] += time.process_time() - began


if __name__ == "__main__":
    main()
