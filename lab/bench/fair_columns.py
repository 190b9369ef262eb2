"""What parts of the KV cache change in DLPM Figure 7, where one client misbehaves and where all behave alike.

    python -m lab.bench.fair_columns
    python -m lab.bench.fair_columns "S1, Long-context QA"

Each row is the mean of three simulations of one GPU under DLPM, in all columns of the figure or in one. *Used longest
ago* is eviction as the papers have it; *fair* is the project's. Where all behave alike, client 0 sends what the others
send.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from lab.bench.judge import pools
from lab.bench.machine import commit
from lab.reproduction.dlpm_fig7 import CASES, MISBEHAVING, WELL_BEHAVED, Case, point_of
from lab.reproduction.measures import first_token_times, over
from lab.reproduction.systems import least_recently_used
from simulation.run import Scenario, SimulationRun

SEEDS = (1, 2, 3)
COLUMNS = (
    "column",
    "eviction",
    "service/s",
    "hit rate",
    "of client 0",
    "of the others",
    "P99 of the others, s",
    "P99 of their first token, s",
)


def hit_rate(run: SimulationRun, clients: Iterable[str]) -> float:
    """Return the part of the prompts of `clients` that was cached."""
    calls = [call for client in clients for call in run.of(client)]
    return sum(call.cached_tokens for call in calls) / sum(call.input_tokens for call in calls)


def row_of(name: str, runs: Sequence[SimulationRun]) -> str:
    """Return the means of the runs of a column as cells of a table."""
    points = [point_of(name, run) for run in runs]
    service = fmean(point.service for point in points)
    groups = (MISBEHAVING, *WELL_BEHAVED), (MISBEHAVING,), WELL_BEHAVED
    hits = " | ".join(f"{fmean(hit_rate(run, clients) for run in runs):.3f}" for clients in groups)
    first = fmean(over(run, WELL_BEHAVED, first_token_times, 99) for run in runs)
    return f"{service:,.0f} | {hits} | {fmean(point.p99 for point in points):.0f} | {first:.0f}"


def loads(name: str) -> dict[str, Case]:
    """Return the column as in the figure, and with a client 0 that behaves as the others."""
    case = CASES[name]
    return {name: case, f"{name}, all alike": replace(case, bad=case.good, faster=1.0)}


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.fair_columns", description=__doc__.partition("\n")[0])
    parser.add_argument("column", nargs="*", default=[*CASES], help=f"{'; '.join(CASES)} (default: all)")
    columns = parser.parse_args().column
    if unknown := [name for name in columns if name not in CASES]:
        parser.error(f"expected some of {'; '.join(CASES)}, got {'; '.join(unknown)}")
    print(f"simulated; commit {commit()}; one GPU, mean of {len(SEEDS)} seeds\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for name in columns:
        fair = pools(CASES[name].block_tokens)["DLPM, Q^u 20,000"]
        longest_ago = replace(fair, worker=least_recently_used(fair.worker))
        for label, case in loads(name).items():
            for eviction, pool in (("used longest ago", longest_ago), ("fair", fair)):
                runs = [Scenario(pool, replace(case.workload(1), seed=seed)).run() for seed in SEEDS]
                print(f"| {label} | {eviction} | {row_of(name, runs)} |", flush=True)


if __name__ == "__main__":
    main()
