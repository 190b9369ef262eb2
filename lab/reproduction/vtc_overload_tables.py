"""VTC Tables 4 to 6: service difference of two and of eight clients that all send more than is served."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from cli.report import bars
from lab.reproduction.item import Finding, Item, Report, Study
from lab.reproduction.measures import service_difference
from lab.reproduction.published import ASKED, Measured, Requests
from lab.reproduction.reference import run_names
from lab.reproduction.slora_cost import SloraProfiled
from lab.reproduction.sources import Sources
from lab.reproduction.streams import Stream, Streams
from lab.reproduction.systems import slora
from lab.reproduction.vtc_ablation import EIGHT, TWO
from lab.reproduction.vtc_system import A10G, KV_TOKENS, SETUP
from lab.reproduction.vtc_tables import HEADER, MEASURED, same_measure
from serving.cost import Cost, WeightedTokens
from simulation.measures import tokens_per_second
from simulation.run import Scenario, SimulationRun, WorkloadSpec
from simulation.simulation_job import SimulationJob

NEAR, SMALL = 0.25, 1.0
APART = 1.5
LINEAR, PROFILED = "weighted-tokens", "slora-profiled"
COSTS: Mapping[str, Cost] = {LINEAR: WeightedTokens(), PROFILED: SloraProfiled()}


@dataclass(frozen=True, slots=True)
class Row:
    """One scheduler of a table: maximum and average as printed, and the authors' run where it is published."""

    policy: str
    most: float
    mean: float
    run: str | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `streams` have the rates of the authors' runs. Schedulers without a published run use the requests of
    VTC's."""

    rows: Mapping[str, Row]
    streams: tuple[Stream, ...]
    cost: str = LINEAR

    @property
    def runs(self) -> dict[str, str]:
        """The names of the published runs by scheduler."""
        return {name: row.run for name, row in self.rows.items() if row.run is not None}

    def study(self, sources: Sources) -> Study:
        """Use the authors' requests if they were given, or else `streams`; then the averages are not judged."""
        missing = _missing(self.runs.values(), sources)
        folder = None if missing else sources.reference
        jobs: dict[str, SimulationJob] = {}
        for name, row in self.rows.items():
            requests = self._requests(folder, name)
            jobs[name] = Scenario(slora(A10G, row.policy, KV_TOKENS, self.cost), requests)
        if folder is not None:
            jobs |= {MEASURED + name: Measured(folder, run) for name, run in self.runs.items()}
        whose = "Arrivals drawn at the authors' rates." if missing else "The requests of the authors' published runs."
        return Study(f"{SETUP} {whose}", jobs, partial(_read, self, missing))

    def _requests(self, folder: Path | None, name: str) -> WorkloadSpec:
        return Streams(self.streams) if folder is None else Requests(folder, self.runs.get(name, self.runs["VTC"]))


def _missing(runs: Iterable[str], sources: Sources) -> str:
    """Return what is missing for the authors' requests, or "" if nothing is."""
    if sources.reference is None:
        return ASKED
    lacking = sorted(set(runs) - set(run_names(sources.reference)))
    return f"needs the published runs {', '.join(lacking)}" if lacking else ""


def _read(table: Table, missing: str, runs: Mapping[str, SimulationRun]) -> Report:
    cells = {name: (*service_difference(run, COSTS[table.cost]), tokens_per_second(run)) for name, run in runs.items()}
    rows: list[tuple[object, ...]] = [HEADER, *((name, *values) for name, values in cells.items())]
    ours = {name: (cells[name][0], cells[name][1]) for name in table.rows}
    printed = {name: (row.most, row.mean) for name, row in table.rows.items()}
    findings = [_average(name, ours[name], printed[name], missing) for name in table.rows]
    findings.append(_order({name: row.mean for name, row in table.rows.items()}, ours))
    if not missing:
        findings.insert(0, same_measure(printed, cells))
    charts = [
        bars(
            f"{which} service difference",
            "service units/s",
            list(table.rows),
            {who: [pair[column] for pair in shown.values()] for who, shown in (("ours", ours), ("the paper", printed))},
        )
        for column, which in enumerate(("maximum", "average"))
    ]
    return Report(rows, charts, findings)


def _average(name: str, ours: tuple[float, float], printed: tuple[float, float], missing: str) -> Finding:
    off = ours[1] - printed[1]
    near = abs(off) <= max(NEAR * printed[1], SMALL)
    return Finding(
        f"maximum and average difference: {name}",
        f"{printed[0]:,.1f} / {printed[1]:,.1f}",
        f"{ours[0]:,.1f} / {ours[1]:,.1f}",
        None if missing else near,
        "" if missing else f"average within {NEAR:.0%} of the paper's or {SMALL:.0f} unit/s",
        f"the arrivals are not the authors': {missing}" if missing else f"average {off / printed[1]:+.0%}",
    )


def _order(printed: Mapping[str, float], ours: Mapping[str, tuple[float, float]]) -> Finding:
    falls = [(a, b, ours[a][1] / ours[b][1]) for a, b in pairwise(printed)]
    return Finding(
        "average: " + ", ".join(printed),
        " > ".join(f"{mean:,.1f}" for mean in printed.values()),
        ", ".join(f"{mean:,.1f}" for _, mean in ours.values()),
        all(ratio >= APART for *_, ratio in falls),
        f"each at least {APART} times the next",
        ", ".join(f"{a} has {ratio:.2f} times {b}'s" for a, b, ratio in falls),
    )


TABLE4 = {
    "FCFS": Row("fcfs", 323.18, 317.13, "FCFS__overload"),
    "VTC": Row("vtc", 137.27, 74.87, "VTC_profile__overload"),
    "VTC (oracle)": Row("vtc-oracle", 4.28, 0.34, "VTC_oracle_profile__overload"),
}
TABLE5 = {
    "VTC": Row("vtc", 192.88, 103.77, "VTC__overload"),
    "VTC (±50%)": Row("vtc-half", 33.98, 12.54, "VTC_pred_50__overload"),
    "VTC (oracle)": Row("vtc-oracle", 5.87, 0.51, "VTC_oracle__overload"),
}
TABLE6 = {
    "VTC": Row("vtc", 322.16, 162.20, "VTC__overload-multi"),
    "VTC (±50%)": Row("vtc-half", 99.43, 66.32, None),
    "VTC (oracle)": Row("vtc-oracle", 43.23, 36.34, "VTC_oracle__overload-multi"),
}
ITEMS = (
    Item("vtc-table4", "VTC Table 4: profiled cost, two overloaded clients", Table(TABLE4, TWO, PROFILED).study),
    Item("vtc-table5", "VTC Table 5: length prediction, two clients", Table(TABLE5, TWO).study),
    Item("vtc-table6", "VTC Table 6: length prediction, eight clients", Table(TABLE6, EIGHT).study),
)
