"""Measurement of one simulated pool."""

import gc
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from global_scheduler.core.dispatcher import Dispatcher
from lab.bench.scaling.conversations import Conversations
from lab.bench.scaling.flood import Flood
from lab.bench.scaling.tally import Tally
from serving.cost import MICRO
from simulation.cluster import SimulatedCluster
from simulation.prompts import BLOCK_TOKENS
from simulation.scheduler import make_dispatcher
from simulation.spec import ClusterSpec, WorkerSpec

DIGEST_BYTES = 8
DISPATCH_BYTES = 120  # size of a dispatch and its answer without digests
REPORT_BYTES = 60
WORKER = WorkerSpec(kv_tokens=50_000, decode_run=16, max_running=128)
POOL = ClusterSpec(
    worker=WORKER, route="doubleq", route_quantum_tokens=16_384, report_seconds=1.0, index_blocks=4_000_000
)
DECISIONS = ("dispatch", "progressed", "ended", "accepted", "reported")


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of one simulated run of a pool.

    `busiest` is the largest number of calls of a worker over the mean; CPU and memory are those of the simulating
    process.
    """

    calls: int
    hit_rate: float
    busiest: float
    wait: float  # TTFT p99, seconds
    gap: float  # of the worst worker, cost units
    bound: float
    scheduler_us: float  # CPU per call
    bytes_per_call: float
    calls_per_minute: float  # simulated calls per minute of CPU
    cpu: float
    memory: int  # peak, bytes


def measure(
    spec: ClusterSpec,
    workload: Conversations | Flood,
    tally: Tally,
    make: Callable[[ClusterSpec], Dispatcher] = make_dispatcher,
) -> Figures:
    """Simulate `workload` on the number of workers for which it is made."""
    gc.collect()
    spec = replace(spec, workers=workload.workers)
    cluster = SimulatedCluster(spec, workload.make(), tally, make(spec))
    spent = _timed(cluster.dispatcher)
    began = time.process_time()
    cluster.run()
    seconds = time.process_time() - began
    calls = tally.ended_calls
    digests = tally.prompt_tokens // BLOCK_TOKENS + 2 * tally.reported_blocks
    reports = spec.workers * tally.seconds / spec.report_seconds * REPORT_BYTES
    return Figures(
        calls=calls,
        hit_rate=tally.cached_tokens / tally.prompt_tokens,
        busiest=max(tally.by_worker.values()) / (calls / spec.workers),
        wait=tally.wait(99),
        gap=tally.worst_gap / MICRO,
        bound=(tally.bound or 0) / MICRO,
        scheduler_us=spent[0] / calls * 1e6,
        bytes_per_call=(digests * DIGEST_BYTES + reports) / calls + DISPATCH_BYTES,
        calls_per_minute=calls / seconds * 60,
        cpu=seconds,
        memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def _timed(dispatcher: Dispatcher) -> list[float]:
    """Measure all later calls into the scheduler's core; return a list with the sum of CPU seconds."""
    spent = [0.0]
    for name in DECISIONS:
        setattr(dispatcher, name, partial(_clocked, getattr(dispatcher, name), spent))
    return spent


def _clocked(call: Callable[..., Any], spent: list[float], *args: Any) -> Any:
    began = time.process_time()
    try:
        return call(*args)
    finally:
        spent[0] += time.process_time() - began
