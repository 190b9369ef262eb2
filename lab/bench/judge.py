"""Where DLPM loses service to LPM: a column of DLPM Figure 7 on one GPU, by quantum and size of the KV cache.

    python -m lab.bench.judge
    python -m lab.bench.judge "S1, Tree of Thoughts"

The column is S1 of LLM-as-a-Judge unless another is named. All clients' calls wait for minutes in it. Each row is one
simulation of seed 1.
"""

import argparse
from dataclasses import replace

from lab.bench.machine import commit
from lab.reproduction.beyond_trial import SYSTEMS
from lab.reproduction.dlpm_fig7 import CASES, WELL_BEHAVED, point_of
from lab.reproduction.measures import first_token_times, over
from serving.cost import MICRO
from simulation.run import Scenario, SimulationRun
from simulation.spec import ClusterSpec

CELL = "S1, LLM-as-a-Judge"
QUANTA = (512, 2_048, 8_192, 20_000, 100_000)
WIDE = (300_000, 1_000_000)  # of the size of U, so that the bound is 1.3 and 2 times the narrowest
COLUMNS = (
    "configuration",
    "service/s",
    "hit rate",
    "prompt tokens computed",
    "gap",
    "bound, s",
    "P99 of the well-behaved, s",
    "P99 of their first token, s",
)


def pools(block_tokens: int) -> dict[str, ClusterSpec]:
    """Return the pools that are compared; `as printed` is DLPM without our additions, and eviction without them."""
    pool = SYSTEMS["least delay + DLPM"].spec(1, block_tokens)
    offered = pool.worker
    worker = replace(offered, strict_paper=True)
    twice = 2 * worker.kv_tokens
    workers = {
        "LPM": replace(worker, policy="lpm"),
        **{f"DLPM as printed, Q^u {quantum:,}": replace(worker, quantum_tokens=quantum) for quantum in QUANTA},
        **{f"DLPM, Q^u {quantum:,}": replace(offered, quantum_tokens=quantum) for quantum in (*QUANTA, *WIDE)},
        "DLPM, Q^u 20,000, fair among interactions": replace(offered, fairness_levels="tenant,user,interaction"),
        "LPM, cache as offered": replace(offered, policy="lpm"),
        "LPM, twice the cache": replace(worker, policy="lpm", kv_tokens=twice),
        "DLPM as printed, Q^u 20,000, twice the cache": replace(worker, kv_tokens=twice),
    }
    return {name: replace(pool, worker=each) for name, each in workers.items()}


def bound_seconds(run: SimulationRun) -> str:
    """Return the bound over the service that the worker gave per second of the run, or a dash without a bound."""
    if run.bound is None:
        return "-"
    given = sum(max(by_second.values()) for by_second in run.actual.values())
    return f"{run.bound / MICRO / (given / run.seconds):.0f}"


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.judge", description=__doc__.partition("\n")[0])
    parser.add_argument("cell", nargs="?", default=CELL, choices=CASES)
    cell = parser.parse_args().cell
    case = CASES[cell]
    compared = pools(case.block_tokens)
    cache = compared["LPM"].worker.kv_tokens
    print(f"simulated; commit {commit()}; {cell}, one GPU, KV cache of {cache:,} tokens\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for name, pool in compared.items():
        run = Scenario(pool, replace(case.workload(1), seed=1)).run()
        point = point_of(cell, run)
        computed = sum(call.input_tokens - call.cached_tokens for call in run.records)
        gap = f"{run.worst_gap / MICRO:,.0f} | {bound_seconds(run)}"
        first = over(run, WELL_BEHAVED, first_token_times, 99)
        cells = f"{point.service:,.0f} | {point.hits:.3f} | {computed:,} | {gap} | {point.p99:.0f} | {first:.0f}"
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
