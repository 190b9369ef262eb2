"""The number of calls that one core simulates per minute, on eight workers.

    python -m lab.bench.simulation [--only QA] [--rounds 3] [--processes 1]

The workloads are those of the reproduction on its systems, and conversations and VTC's overload on this project's own
engine, which plans before every decoding step. Times are CPU seconds, including the creation of the workload. The least
of the rounds counts, because other processes share the cores and caches.
"""

import argparse
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing import Pool

from lab.bench.machine import commit, processor
from lab.bench.scaling.conversations import Conversations
from lab.reproduction.dlpm_fig7 import CASES
from lab.reproduction.dlpm_system import A100, SCHEDULERS, system
from lab.reproduction.fairserve_workload import APPS, SYSTEMS, User, Users
from lab.reproduction.fairserve_workload import system as fairserve
from lab.reproduction.streams import Stream, Streams
from lab.reproduction.systems import slora
from lab.reproduction.vtc_system import A10G, KV_TOKENS
from simulation.cluster import SimulatedCluster
from simulation.run import WorkloadSpec
from simulation.spec import ClusterSpec, WorkerSpec

WORKERS = 8
TARGET = 50_000
PAIRS = (
    ("dlpm", "doubleq"),
    ("vtc", "round-robin"),
    ("vtc", "per-client-round-robin"),
    ("lpm", "preble"),
    ("fcfs", "least-loaded"),
)
# Two clients per worker, of which one sends twice as much as the other: VTC Figure 3, eight times.
OVERLOAD = Streams(
    tuple(
        Stream(client=f"{number} {rate}", per_minute=rate, stop=120.0)
        for number in range(WORKERS)
        for rate in (90, 180)
    )
)
POPULATION = Users(
    tuple(User(f"user {number:04}", APPS[number % len(APPS)], 0.6) for number in range(200 * WORKERS)), seconds=60.0
)
COLUMNS = ("workload", "system", "calls", "prompt", "output", "CPU ms/call", "calls/min")


@dataclass(frozen=True, slots=True)
class Cell:
    """A workload on a system, as one row of the table."""

    workload: str
    system: str
    spec: ClusterSpec
    calls: WorkloadSpec

    def run(self) -> tuple[int, int, int, float]:
        """Return calls, prompt tokens, output tokens and CPU seconds."""
        gc.collect()  # free the previous run's objects
        began = time.process_time()
        journal = SimulatedCluster(self.spec, self.calls.make()).run()
        seconds = time.process_time() - began
        prompts = sum(call.prompt_tokens for call in journal.calls)
        return len(journal.calls), prompts, sum(call.received for call in journal.calls), seconds


def cells() -> Iterator[Cell]:
    """Yield every workload on every system on which it is simulated."""
    for name, case in CASES.items():
        for scheduler in SCHEDULERS:
            spec = system(scheduler, WORKERS, A100, block_tokens=case.block_tokens)
            yield Cell(name, scheduler, spec, case.workload(WORKERS))
    for policy in ("vtc", "fcfs", "vtc-oracle"):
        yield Cell("VTC Figure 3", f"S-LoRA, {policy}", _pool(slora(A10G, policy, KV_TOKENS)), OVERLOAD)
    for name in SYSTEMS:
        yield Cell("FairServe's applications", name, _pool(fairserve(name, 60)), POPULATION)
    conversations = Conversations(WORKERS, calls=240, users=10 * WORKERS)
    for local, across in PAIRS:
        spec = ClusterSpec(workers=WORKERS, worker=WorkerSpec(policy=local), route=across)
        yield Cell("conversations", f"{local}, {across}", spec, conversations)
        yield Cell("overload", f"{local}, {across}", spec, OVERLOAD)


def _pool(spec: ClusterSpec) -> ClusterSpec:
    return replace(spec, workers=WORKERS, route="per-client-round-robin")


def main() -> None:
    """Print one row per cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="measure only rows whose workload or system contains this text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    chosen = [cell for cell in cells() if args.only in f"{cell.workload}, {cell.system}"]
    print(f"{processor()}; commit {commit()}; {WORKERS} workers, target {TARGET:,} calls/min, best of {args.rounds}")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
    with Pool(args.processes, maxtasksperchild=args.rounds) as pool:
        rounds = pool.imap(Cell.run, [cell for cell in chosen for _ in range(args.rounds)], chunksize=1)
        for cell in chosen:
            calls, prompts, outputs, seconds = min((next(rounds) for _ in range(args.rounds)), key=lambda got: got[3])
            rate = calls / seconds * 60
            print(
                f"| {cell.workload} | {cell.system} | {calls:,} | {prompts / calls:,.0f} | {outputs / calls:,.0f} | "
                f"{seconds / calls * 1e3:.2f} | {rate:,.0f}{'' if rate >= TARGET else ' (below)'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
