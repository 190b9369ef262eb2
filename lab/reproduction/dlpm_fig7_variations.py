"""The influence of arrival time, baselines and Q^w on the ratios of DLPM Figure 7."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cli.report import bars
from lab.reproduction.dlpm_fig7 import Point, point_of, scenario
from lab.reproduction.dlpm_system import item
from lab.reproduction.item import NOT_MEASURED, Finding, Report
from simulation.run import Scenario, SimulationRun
from simulation.simulation_job import SimulationJob

QA, TREES, JUDGE = "S2, Long-context QA", "S2, Tree of Thoughts", "S1, LLM-as-a-Judge"
S1_TREES = "S1, Tree of Thoughts"
HEADER = ("comparison", "service/s", "Jain index", "P50 s", "P99 s", "hit rate", "end s")


@dataclass(frozen=True, slots=True)
class Variation:
    """DoubleQ beside another scheduler with one change to the figure's setup."""

    claim: str
    paper: str
    case: str
    degree: int
    other: str
    seconds: float | None = None  # duration of arrivals, if it differs from the figure's
    worker_quantum: int | None = None

    def run_of(self, scheduler: str) -> Scenario:
        """Return the scenario of DoubleQ or of the other scheduler."""
        run = scenario(self.case, self.degree, scheduler, self.seconds)
        if self.worker_quantum is not None and scheduler == "DoubleQ":
            run = replace(run, spec=replace(run.spec, route_quantum_tokens=self.worker_quantum))
        return run


VTC = "up to 2.87 and 7.96", "VTC"
LPM = "up to 2.22 and 9.55", "RR + LPM"
VARIATIONS = (
    Variation("40 s of arrivals, VTC", VTC[0], QA, 4, VTC[1], seconds=40.0),
    Variation("240 s of arrivals, VTC", VTC[0], QA, 4, VTC[1]),
    Variation("20 s of arrivals, RR + LPM", LPM[0], S1_TREES, 4, LPM[1], seconds=20.0),
    Variation("50 s of arrivals, RR + LPM", LPM[0], S1_TREES, 4, LPM[1]),
    Variation("LPM whatever the queue", LPM[0], QA, 8, LPM[1]),
    Variation("SGLang's LPM, which gives the order up while more than 128 wait", LPM[0], QA, 8, "RR + SGLang's LPM"),
    Variation("Preble, Q^w = 40,000", "at least 1 and up to 7.18", QA, 4, "Preble"),
    Variation("Preble, Q^w = 4,000,000", "at least 1 and up to 7.18", QA, 4, "Preble", worker_quantum=4_000_000),
    Variation("Preble, Q^w = 40,000", "at least 1 and up to 7.18", JUDGE, 4, "Preble"),
    Variation("Preble, Q^w = 4,000,000", "at least 1 and up to 7.18", JUDGE, 4, "Preble", worker_quantum=4_000_000),
    Variation("Preble that rebalances", "at least 1 and up to 7.18", TREES, 4, "Preble"),
    Variation("Preble that never leaves a match", "at least 1 and up to 7.18", TREES, 4, "Preble, fixed"),
)


def _name(variation: Variation, scheduler: str) -> str:
    return f"{variation.case}, D = {variation.degree}, {variation.claim}: {scheduler}"


def _jobs() -> dict[str, SimulationJob]:
    return {_name(v, scheduler): v.run_of(scheduler) for v in VARIATIONS for scheduler in ("DoubleQ", v.other)}


def _read(runs: Mapping[str, SimulationRun]) -> Report:
    rows: list[tuple[object, ...]] = [HEADER]
    findings, ratios = [], []
    for variation in VARIATIONS:
        points = [point_of(variation.case, runs[_name(variation, name)]) for name in ("DoubleQ", variation.other)]
        for scheduler, p in zip(("DoubleQ", variation.other), points, strict=True):
            rows.append((_name(variation, scheduler), p.service, p.jain, p.p50, p.p99, p.hits, p.seconds))
        ratios.append(_ratios(*points))
        text = "{:.2f} and {:.2f}".format(*ratios[-1])
        findings.append(Finding(_claim(variation), variation.paper, text, because=NOT_MEASURED))
    shown = dict(zip(WHAT, zip(*ratios, strict=True), strict=True))
    chart = bars("DoubleQ and the other", "ratio", [str(n) for n, _ in enumerate(VARIATIONS, start=1)], shown)
    return Report(rows, [replace(chart, x="row of the report")], findings)


WHAT = "throughput, DoubleQ's / other's", "P99, other's / DoubleQ's"


def _ratios(ours: Point, other: Point) -> tuple[float, float]:
    return ours.service / other.service, other.p99 / ours.p99


def _claim(variation: Variation) -> str:
    return f"{variation.case}, D = {variation.degree}: {variation.claim}"


ITEMS = (
    item(
        "dlpm-fig7-variations",
        "Figure 7, what it depends on",
        "As dlpm-fig7 but for what each row names: DoubleQ's throughput over the other's, and the other's P99 latency "
        "of well-behaved clients over DoubleQ's.",
        _jobs(),
        _read,
    ),
)
