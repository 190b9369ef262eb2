"""Agents on a simulated pool: finished interactions, contexts computed twice, first tokens; by throttle and load.

    python -m lab.bench.working_sets TRACES claude-code [--workers 2] [--loads 0.8,1.2,2] [--seconds 2400] [--seeds 5]

TRACES is a folder with the published traces and the rates of ServeGen. A load of 1 starts as many interactions per hour
as the pool finishes at most, under the best throttle. Each row is the mean of runs with seeds 1 to --seeds, whose first
quarter does not count. `oit, calls` is OIT whose gateways do not know the memory of the pool. With --isolated the pool
has as many tenants as workers, and the interactions of each tenant also run alone on one worker. --memory multiplies
the workers' KV caches: with enough of it, a row says what no admission can exceed.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, Self

from lab.bench.machine import commit
from lab.bench.working_sets.agents import Agents
from lab.bench.working_sets.sessions import RATES, Session, sessions, tenant_weights
from lab.rehearsal.sharing_cluster import SharingCluster, SharingSpec
from serving.statistics import percentile
from simulation.spec import WorkerSpec
from simulation.step_time import profile
from throttler.core.profiles import RateLimits

HOUR = 3600.0
UNCOUNTED = 0.25  # of the time
TENANTS = 8
# Above what a tenant's share of these pools needs, so that the numbers of calls limit nobody.
LIMITS = RateLimits(user_per_minute=600, app_per_minute=6000)
THROTTLES = {
    "none": SharingSpec(throttle="none"),
    "oit, calls": SharingSpec(throttle="oit", reports_memory=False),
    "oit": SharingSpec(throttle="oit"),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A trace on a kind of worker; `most` is how many interactions a worker finishes per hour."""

    file: str
    gpu: str
    model: str
    kv_tokens: int
    longest: int  # tokens of a prompt
    most: float


# KV tokens are what the model's weights leave of the GPU's memory.
CELLS = {
    "claude-code": Cell("claudecode_requests.csv.gz", "h100", "llama-3.1-8b", 400_000, 100_000, 88),
    "mini-swe": Cell("agent_miniswe.csv.gz", "a10g", "llama-3.2-3b", 130_000, 38_000, 200),
    "orchestrator": Cell("agent_magagent.csv.gz", "a10g", "llama-3.1-8b", 40_000, 38_000, 64),
}


def cluster(cell: Cell, throttle: str, workers: int, gateways: int = 1) -> SharingSpec:
    """Return the pool of a cell under a throttle."""
    worker = WorkerSpec(
        profile=profile(cell.gpu, cell.model),
        kv_tokens=cell.kv_tokens // 64 * 64,
        block_tokens=64,
        max_running=64,
        max_prompt_tokens=cell.longest,
        max_output_tokens=20_000,
        decode_run=4,
    )
    return replace(THROTTLES[throttle], gateways=gateways, workers=workers, worker=worker, limits=LIMITS)


def run(spec: SharingSpec, agents: Agents) -> Agents:
    """Run a workload, and return it with what it has seen."""
    SharingCluster(spec, agents).run()
    return agents


class Figures(NamedTuple):
    """What a run has counted after its first quarter: numbers per hour, millions of tokens per hour, seconds."""

    finished: float
    their_calls: float
    calls: float
    computed: float
    again: float
    p50: float
    p99: float
    refused: float  # calls in the whole run

    @classmethod
    def of(cls, agents: Agents, seconds: float) -> Self:
        """Return the figures of a run of `seconds`."""
        since = UNCOUNTED * seconds
        per_hour = HOUR / (seconds - since)
        answered = [call for call in agents.answered if since <= call.ended <= seconds]
        finished = [agent for agent in agents.finished if since <= agent.ended <= seconds]
        waits = [call.seconds for call in answered]
        return cls(
            len(finished) * per_hour,
            sum(agent.calls for agent in finished) * per_hour,
            len(answered) * per_hour,
            sum(call.prompt - call.cached for call in answered) * per_hour / 1e6,
            sum(call.again for call in answered) * per_hour / 1e6,
            percentile(waits, 50),
            percentile(waits, 99),
            agents.refused,
        )


def row(name: str, load: float, runs: Sequence[Figures]) -> str:
    """Return the table's row of runs with different seeds: their means, and what least and most of them finished."""
    mean = Figures(*map(fmean, zip(*runs, strict=True)))
    least, most = (f"{pick(run.finished for run in runs):.0f}" for pick in (min, max))
    figures = (
        f"{mean.finished:.0f} ({least} to {most})",
        f"{mean.their_calls:,.0f}",
        f"{mean.calls:,.0f}",
        f"{mean.computed:.1f}",
        f"{mean.again:.1f}",
        f"{mean.p50:.2f} / {mean.p99:.1f}",
        f"{mean.refused:,.0f}",
    )
    return f"| {load:g} | {name} | {' | '.join(figures)} |"


def table(cell: Cell, taken: list[Session], weights: list[float], args: argparse.Namespace) -> None:
    """Print the table of loads and throttles."""
    print(
        "| load | throttle | finished/h | their calls/h | calls/h | M computed/h | M again/h | first token | refused |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for load in map(float, args.loads.split(",")):
        rate = load * cell.most * args.workers / HOUR
        for throttle in args.throttles:
            pool = cluster(cell, throttle, args.workers, args.gateways)
            starts = [Agents(taken, weights, rate, args.seconds, seed) for seed in range(1, args.seeds + 1)]
            print(row(throttle, load, [Figures.of(run(pool, each), args.seconds) for each in starts]), flush=True)


def isolated(cell: Cell, taken: list[Session], weights: list[float], args: argparse.Namespace) -> None:
    """Print what each tenant finishes in the pool, and alone on one worker, in all runs together."""
    weights = weights[: args.workers]
    for load in map(float, args.loads.split(",")):
        rate = load * cell.most * args.workers / HOUR
        for throttle in args.throttles:
            together, alone = Counter[str](), Counter[str]()
            for seed in range(1, args.seeds + 1):
                starts = Agents(taken, weights, rate, args.seconds, seed)
                together.update(each.tenant for each in run(cluster(cell, throttle, args.workers), starts).finished)
                for tenant in range(len(weights)):
                    starts = Agents(taken, weights, rate, args.seconds, seed, only=tenant)
                    alone.update(each.tenant for each in run(cluster(cell, throttle, 1), starts).finished)
            shown = [f"{together[name]} ({alone[name]})" for name in sorted(together | alone)]
            print(f"| {load:g} | {throttle} | {' | '.join(shown)} |", flush=True)


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.working_sets", description=__doc__)
    parser.add_argument("traces", type=Path)
    parser.add_argument("cell", choices=CELLS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gateways", type=int, default=1)
    parser.add_argument("--loads", default="0.8,1.2,2")
    parser.add_argument("--throttles", nargs="+", choices=THROTTLES, default=list(THROTTLES))
    parser.add_argument("--seconds", type=float, default=2400.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--isolated", action="store_true")
    parser.add_argument("--memory", type=int, default=1)
    args = parser.parse_args()
    cell = replace(CELLS[args.cell], kv_tokens=CELLS[args.cell].kv_tokens * args.memory)
    taken = sessions(args.traces / cell.file, cell.longest)
    weights = tenant_weights(args.traces / RATES, TENANTS)
    print(f"{args.cell}: {len(taken)} interactions; {args.workers} workers; commit {commit()}\n")
    (isolated if args.isolated else table)(cell, taken, weights, args)


if __name__ == "__main__":
    main()
