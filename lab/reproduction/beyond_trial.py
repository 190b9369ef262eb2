"""One trial of a route beyond the papers: a cell of DLPM Figure 7, a system and a seed; its measures are kept in a
file."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from lab.reproduction.dlpm_fig7 import CASES, DEGREES, MISBEHAVING, OMITTED, WELL_BEHAVED, point_of
from lab.reproduction.dlpm_system import A100, system
from lab.reproduction.measures import first_token_times, over
from simulation.run import Scenario
from simulation.simulation_job import Ended
from simulation.spec import ClusterSpec


@dataclass(frozen=True, slots=True)
class System:
    """A queue policy of the workers with a route; workers and DoubleQ are as the papers print them, or as offered."""

    local: str
    route: str
    strict_paper: bool

    def spec(self, degree: int, block_tokens: int) -> ClusterSpec:
        """Return `degree` workers of Figure 7 with these policies."""
        pool = system("DoubleQ", degree, A100, block_tokens=block_tokens)
        worker = replace(pool.worker, policy=self.local, strict_paper=self.strict_paper)
        return replace(pool, worker=worker, route=self.route, route_strict_paper=self.strict_paper)


OURS = "least delay + DLPM"
CONTENDERS: Mapping[str, System] = {
    "DoubleQ + DLPM, printed": System("dlpm", "doubleq", strict_paper=True),
    "DoubleQ + DLPM": System("dlpm", "doubleq", strict_paper=False),
    "Preble + LPM": System("lpm", "preble", strict_paper=True),
    "Preble + LPM, fixed": System("lpm", "preble-fixed", strict_paper=True),
    "LMetric + LPM": System("lpm", "lmetric", strict_paper=True),
}
BASELINES: Mapping[str, System] = {
    "RR + LPM": System("lpm", "round-robin", strict_paper=True),
    "RR per client + VTC": System("vtc", "per-client-round-robin", strict_paper=True),
    "least loaded + LPM": System("lpm", "least-loaded", strict_paper=True),
}
# What each part of the system contributes: the paper's DLPM, the rival's workers, and the rival's route.
PARTS: Mapping[str, System] = {
    "least delay + DLPM, printed": System("dlpm", "least-delay", strict_paper=True),
    "least delay + LPM": System("lpm", "least-delay", strict_paper=True),
    "Preble + DLPM": System("dlpm", "preble", strict_paper=False),
}
RIVALS: Mapping[str, System] = {**CONTENDERS, **BASELINES}
SYSTEMS: Mapping[str, System] = {
    OURS: System("dlpm", "least-delay", strict_paper=False),
    **CONTENDERS,
    **PARTS,
    **BASELINES,
}
# Cells and systems that say most about the default come first, so that an interrupted evaluation is useful.
ORDER = ("S1, LLM-as-a-Judge", "S2, Long-context QA", "S1, Long-context QA", "S2, LLM-as-a-Judge")


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of Figure 7: a workload on `degree` GPUs, every second of which may be slower by a factor."""

    case: str
    degree: int
    slower: float = 1.0

    def __str__(self) -> str:
        slower = f", every second GPU {self.slower:g} times slower" if self.slower != 1.0 else ""
        return f"{self.case}, D = {self.degree}{slower}"


UNEQUAL = Cell("S2, Long-context QA", 4, slower=3.0)


def cells() -> list[Cell]:
    """Return the 23 cells of the figure in the order in which they are run, four GPUs first, one GPU last; then
    UNEQUAL."""
    cases = [*ORDER, *(case for case in CASES if case not in ORDER)]
    made = [Cell(case, degree) for degree in (4, 2, 8, 1) for case in cases]
    assert {cell.degree for cell in made} == set(DEGREES), "a degree of the figure is missing"
    return [*(cell for cell in made if (cell.case, cell.degree) != OMITTED), UNEQUAL]


@dataclass(frozen=True, slots=True)
class Measures:
    """The measurements of a trial: service in cost units per second, times in seconds.

    `p50` and `p99` are the figure's latencies of well-behaved clients, `first_token` the 99th percentile of their
    times to the first token and `first_token_all` that of all clients.
    """

    service: float
    jain: float
    p50: float
    p99: float
    first_token: float
    first_token_all: float
    hits: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial is one simulation; see SimulationJob."""

    cell: Cell
    system: str
    seed: int

    def run(self, ended: Ended | None = None) -> Measures:
        """Simulate the trial and measure it."""
        case = CASES[self.cell.case]
        pool = SYSTEMS[self.system].spec(self.cell.degree, case.block_tokens)
        spec = replace(pool, slowdowns=(1.0, self.cell.slower))
        workload = replace(case.workload(self.cell.degree), seed=self.seed)
        run = Scenario(spec, workload).run(ended)
        point = point_of(self.cell.case, run)
        first, first_all = (
            over(run, clients, first_token_times, 99) for clients in (WELL_BEHAVED, (*WELL_BEHAVED, MISBEHAVING))
        )
        return Measures(point.service, point.jain, point.p50, point.p99, first, first_all, point.hits, point.seconds)

    @property
    def file(self) -> str:
        """The name of the file of its measures."""
        slower = f" slower {self.cell.slower:g}" if self.cell.slower != 1.0 else ""
        words = f"{self.cell.case} {self.cell.degree}{slower} {self.system} seed {self.seed}"
        return "-".join(words.lower().replace(",", " ").replace("+", " ").split()) + ".json"


def trials(seeds: int) -> Iterator[Trial]:
    """Yield all trials: of all seeds those of ours and the contenders first, and of a seed the cells in their order."""
    early = (OURS, *CONTENDERS)
    for names in (early, [name for name in SYSTEMS if name not in early]):
        for seed, cell, name in product(range(1, seeds + 1), cells(), names):
            yield Trial(cell, name, seed)


def load(folder: Path, trial: Trial) -> Measures | None:
    """Return the trial's measures that an earlier run kept in `folder`, or None."""
    try:
        return Measures(**json.loads((folder / trial.file).read_text()))
    except FileNotFoundError:
        return None


def keep(folder: Path, trial: Trial, measures: Measures) -> None:
    """Write the trial's measures to its file, whole or not at all."""
    partial = folder / f"{trial.file}.partial"
    partial.write_text(json.dumps(asdict(measures), indent=1) + "\n")
    partial.rename(folder / trial.file)
