"""Other orders of DLPM's queue, and DLPM without each of two additions: what they gain and lose in DLPM Figure 7.

    python -m lab.bench.orders
    python -m lab.bench.orders --gpus 2 --seed 2 --cells "S1, LLM-as-a-Judge" --orders "in progress first"

All orders are among requests whose clients have credit, so that the bound holds under each of them. A cell is simulated
in full, with one seed and least delay as the route.
"""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from lab.bench.machine import commit
from lab.reproduction.beyond_trial import OURS, SYSTEMS
from lab.reproduction.dlpm_fig7 import CASES, WELL_BEHAVED, point_of
from lab.reproduction.measures import first_token_times, over
from local_worker.core.policies import dlpm
from local_worker.core.policies.dlpm import Dlpm
from local_worker.core.policies.prefix_match_queue import RankKey
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.request import Request
from simulation.run import Scenario

CELLS = ("S1, LLM-as-a-Judge", "S2, LLM-as-a-Judge", "S1, Tree of Thoughts", "S2, Tree of Thoughts")

FIRST = 1 << 40  # greater than any number of tokens, and than any number of arrivals


def _in_progress_first(_policy: Dlpm, request: Request, matched: int) -> RankKey:
    return -matched - FIRST * request.in_interaction, request.arrival


def _then_in_progress(_policy: Dlpm, request: Request, matched: int) -> RankKey:
    return -matched, request.arrival - FIRST * request.in_interaction


# The part of the policy or of the cache that is replaced, and by what.
ORDERS: Mapping[str, tuple[object, str, object]] = {
    "as offered": (dlpm, "MAX_PASSED", dlpm.MAX_PASSED),
    "in progress first": (Dlpm, "_key", _in_progress_first),
    "longest match, then in progress": (Dlpm, "_key", _then_in_progress),
    "earliest after 16 admissions": (dlpm, "MAX_PASSED", 16),
    "earliest after 4 admissions": (dlpm, "MAX_PASSED", 4),
    "no waiting for a prefix": (PrefixCache, "is_underway", lambda *_: False),
    "what waits is not spared": (PrefixCache, "arrived", PrefixCache.match),
}


@contextmanager
def ordered(name: str) -> Iterator[None]:
    """Let DLPM have the order of that name."""
    owner, part, other = ORDERS[name]
    before = getattr(owner, part)
    setattr(owner, part, other)
    try:
        yield
    finally:
        setattr(owner, part, before)


def figures(cell: str, gpus: int, seed: int) -> str:
    """Simulate a cell with the present order, and return its three figures."""
    case = CASES[cell]
    pool = SYSTEMS[OURS].spec(gpus, case.block_tokens)
    run = Scenario(pool, replace(case.workload(gpus), seed=seed)).run()
    point, first = point_of(cell, run), over(run, WELL_BEHAVED, first_token_times, 99)
    return f"{point.service:,.0f} / {point.p99:.0f} / {first:.0f}"


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.orders", description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", nargs="+", choices=CASES, default=CELLS)
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=tuple(ORDERS))
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(f"simulated; commit {commit()}; {args.gpus} GPUs, seed {args.seed}; service per second / P99 of the")
    print("well-behaved, s / P99 of their times to the first token, s\n")
    print(f"| order | {' | '.join(args.cells)} |\n|{'---|' * (1 + len(args.cells))}")
    for name in args.orders:
        with ordered(name):
            print(f"| {name} | {' | '.join(figures(cell, args.gpus, args.seed) for cell in args.cells)} |", flush=True)


if __name__ == "__main__":
    main()
