"""What least delay gains with other constants: its factor RECOMPUTE, and the memory of a client's average output.

    python -m lab.bench.delay_factor chosen
    python -m lab.bench.delay_factor held-out --variants "factor 1" "factor 4"

The 18 cells of `python -m lab.reproduction beyond` with several GPUs are in two halves, each with every workload: in
`chosen` constants are compared, and `held-out` confirms them. A cell is simulated for a third of its time of arrivals,
with one seed.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

from global_scheduler.core.policies import least_delay
from lab.bench.machine import commit
from lab.reproduction.beyond_trial import OURS, SYSTEMS, UNEQUAL, Cell, cells
from lab.reproduction.dlpm_fig7 import CASES, DEGREES, Point, point_of
from simulation.run import Scenario

AS_IS = "as is"
VARIANTS: Mapping[str, Mapping[str, int]] = {  # constants of the policy's module
    AS_IS: {},
    **{f"factor {factor}": {"RECOMPUTE": factor} for factor in (0, 1, 4, 8)},
    **{f"memory {requests}": {"OWN_MEMORY": requests} for requests in (2, 32)},
}
HALVES = ("chosen", "held-out")
SHORTER = 3


def half(name: str) -> list[Cell]:
    """Return the cells of that half, those with few GPUs first: of each workload every second degree, and in `chosen`
    the unequal workers."""
    cases = list(CASES)
    found = [
        cell
        for cell in cells()
        if cell.degree > 1
        and cell != UNEQUAL
        and HALVES[(cases.index(cell.case) + DEGREES.index(cell.degree) + 1) % 2] == name
    ]
    return sorted([*found, UNEQUAL] if name == HALVES[0] else found, key=lambda cell: cell.degree)


def simulate(cell: Cell, constants: Mapping[str, int]) -> Point:
    """Simulate a third of the cell with these constants and measure it."""
    case = CASES[cell.case]
    pool = replace(SYSTEMS[OURS].spec(cell.degree, case.block_tokens), slowdowns=(1.0, cell.slower))
    workload = replace(case, seconds=case.seconds / SHORTER).workload(cell.degree)
    before = {name: getattr(least_delay, name) for name in constants}
    vars(least_delay).update(constants)
    try:
        return point_of(cell.case, Scenario(pool, workload).run())
    finally:
        vars(least_delay).update(before)


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.delay_factor", description=__doc__.partition("\n")[0])
    parser.add_argument("half", choices=HALVES)
    others = [name for name in VARIANTS if name != AS_IS]
    parser.add_argument("--variants", nargs="+", choices=others, default=others)
    args = parser.parse_args()
    print(
        f"simulated; commit {commit()}; throughput over that of least delay as it is / P99 of the well-behaved of least"
    )
    print(f"delay as it is over theirs (above 1: better than as it is); {args.half} cells, a third of their length\n")
    print(f"| cell | {' | '.join(args.variants)} |\n|{'---|' * (1 + len(args.variants))}")
    ratios: dict[str, list[tuple[float, float]]] = {name: [] for name in args.variants}
    for cell in half(args.half):
        as_is = simulate(cell, VARIANTS[AS_IS])
        for name, found in ratios.items():
            point = simulate(cell, VARIANTS[name])
            found.append((point.service / as_is.service, as_is.p99 / point.p99))
        print(f"| {cell} | {' | '.join(_text(*found[-1]) for found in ratios.values())} |", flush=True)
    for what, of in (("mean", fmean), ("worst", min)):
        texts = [_text(*(of(each) for each in zip(*found, strict=True))) for found in ratios.values()]
        print(f"| **{what}** | {' | '.join(texts)} |")


def _text(service: float, latency: float) -> str:
    return f"{service:.2f} / {latency:.2f}"


if __name__ == "__main__":
    main()
