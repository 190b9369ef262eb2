"""Where DLPM loses service to LPM: LLM-as-a-Judge of DLPM Figure 7 on one GPU, by quantum and size of the KV cache.

    python -m bench.judge

All clients' calls wait for minutes in this cell, which is S1 with one worker. Each row is one simulation of seed 1.
"""

from dataclasses import replace

from bench.machine import commit
from reproduction.beyond_trial import SYSTEMS
from reproduction.dlpm_fig7 import CASES, point_of
from serving.cost import MICRO
from simulation.run import Scenario
from simulation.spec import ClusterSpec

CELL = "S1, LLM-as-a-Judge"
CASE = CASES[CELL]
POOL = SYSTEMS["least delay + DLPM"].spec(1, CASE.block_tokens)
CACHE = POOL.worker.kv_tokens
QUANTA = (512, 2_048, 8_192, 20_000, 100_000)
COLUMNS = ("configuration", "service/s", "hit rate", "gap", "P99 of the well-behaved, s")


def pools() -> dict[str, ClusterSpec]:
    """Return the pools that are compared; `as printed` is DLPM without our additions."""
    worker = POOL.worker
    workers = {
        "LPM": replace(worker, policy="lpm"),
        **{f"DLPM as printed, Q^u {quantum:,}": replace(worker, quantum_tokens=quantum) for quantum in QUANTA},
        "DLPM, Q^u 20,000": replace(worker, strict_paper=False),
        "DLPM, Q^u 20,000, output charged when reserved": replace(worker, strict_paper=False, charge="reserved"),
        "LPM, twice the cache": replace(worker, policy="lpm", kv_tokens=2 * CACHE),
        "DLPM as printed, Q^u 20,000, twice the cache": replace(worker, kv_tokens=2 * CACHE),
    }
    return {name: replace(POOL, worker=each) for name, each in workers.items()}


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    print(f"simulated; commit {commit()}; {CELL}, one GPU, KV cache of {CACHE:,} tokens\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for name, pool in pools().items():
        run = Scenario(pool, replace(CASE.workload(1), seed=1)).run()
        point = point_of(CELL, run)
        cells = f"{point.service:,.0f} | {point.hits:.3f} | {run.worst_gap / MICRO:,.0f} | {point.p99:.0f}"
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
