"""VTC Tables 2 and 3: service differences between the 27 clients of Chatbot Arena."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cli.report import bars
from lab.reproduction.arena import COPIES, item, later
from lab.reproduction.item import Finding, Report
from lab.reproduction.measures import service_difference
from lab.reproduction.published import Measured
from lab.reproduction.reference import run_names
from lab.reproduction.slora_cost import SloraProfiled
from serving.cost import Cost, WeightedTokens
from simulation.measures import tokens_per_second
from simulation.run import SimulationRun
from simulation.simulation_job import SimulationJob

Runs = Mapping[str, SimulationRun]
MEASURED = "measured "  # prefix of the names of published runs
LAST_DIGIT = 0.01
ALIKE = 0.1  # difference between copies of the workload with arrivals up to a second later
HEADER = ("scheduler", "max diff", "avg diff", "diff var", "throughput, tokens/s")
# Maximum difference, average, variance, throughput.
TABLE2 = {
    "FCFS": (759.97, 433.53, 32112.00, 777),
    "LCF": (750.49, 323.82, 29088.90, 778),
    "VTC": (368.40, 251.66, 6549.16, 779),
    "VTC (predict)": (365.47, 240.33, 5321.62, 773),
    "VTC (oracle)": (329.46, 227.51, 4475.76, 781),
    "RPM(5)": (143.86, 83.58, 1020.46, 340),
    "RPM(20)": (446.76, 195.71, 7449.79, 694),
    "RPM(30)": (693.66, 309.45, 24221.31, 747),
}
TABLE3 = {
    "FCFS": (743.23, 457.29, 26645.42, 777),
    "LCF": (709.35, 384.78, 23299.20, 778),
    "VTC": (707.35, 368.74, 21918.67, 780),
    "VTC (predict)": (617.22, 337.05, 11803.41, 778),
    "VTC (oracle)": (387.43, 277.18, 4541.57, 783),
    "RPM(5)": (230.78, 151.00, 823.15, 340),
    "RPM(20)": (445.34, 270.51, 5938.52, 694),
    "RPM(30)": (801.16, 377.22, 25980.39, 747),
}
ORDER = (("VTC", "FCFS"), ("VTC", "LCF"), ("VTC (oracle)", "VTC"), ("RPM(5)", "RPM(20)"), ("RPM(20)", "RPM(30)"))
NEAR = 0.05

Cells = tuple[float, float, float, float]


def _table(printed: Mapping[str, Cells], cost: Cost, runs: Runs) -> Report:
    cells = {name: _differences(run, cost) for name, run in runs.items() if "copy" not in name}
    ours = {name: c for name, c in cells.items() if not name.startswith(MEASURED)}
    rows: list[tuple[object, ...]] = [HEADER, *((name, *values) for name, values in cells.items())]
    findings = [same_measure(printed, cells)]
    findings += [_row(name, paper, ours[name]) for name, paper in printed.items()]
    findings += [_below(better, worse, printed, ours) for better, worse in ORDER]
    findings.append(_throughput(printed, ours))
    shown = {"ours": [ours[name] for name in printed], "the paper": list(printed.values())}
    charts = [
        bars(
            what,
            unit_of,
            list(printed),
            {who: [c[column] for c in found] for who, found in shown.items()},
        )
        for column, what, unit_of in (
            (0, "maximum service difference", "service units/s"),
            (1, "average service difference", "service units/s"),
            (3, "throughput", "tokens/s"),
        )
    ]
    return Report(rows, charts, findings)


def _row(name: str, printed: Cells, ours: Cells) -> Finding:
    off = [ours[column] / printed[column] - 1 for column in (1, 3)]
    return Finding(
        f"{name}: max, avg, variance, tokens/s",
        _cells(printed),
        _cells(ours),
        max(map(abs, off)) <= ALIKE,
        f"average and tokens/s within {ALIKE:.0%}",
        f"average {off[0]:+.0%}, tokens/s {off[1]:+.0%}",
    )


def _below(better: str, worse: str, printed: Mapping[str, Cells], ours: Mapping[str, Cells]) -> Finding:
    a, b = ours[better][1], ours[worse][1]
    return Finding(
        f"average difference: {better} below {worse}",
        f"{printed[better][1]:.0f} < {printed[worse][1]:.0f}",
        f"{a:.0f} and {b:.0f}",
        a < b,
        "below, in this one run of each",
        f"{a / b - 1:+.1%}, where the paper has {printed[better][1] / printed[worse][1] - 1:+.1%}",
    )


def _throughput(printed: Mapping[str, Cells], ours: Mapping[str, Cells]) -> Finding:
    (vtc, small), (paper_vtc, paper_small) = (
        (cells["VTC"][3] / cells["FCFS"][3], cells["RPM(5)"][3] / cells["VTC"][3]) for cells in (ours, printed)
    )
    return Finding(
        "throughput: VTC against FCFS, RPM(5) against VTC",
        f"{paper_vtc:.2f} and {paper_small:.2f}",
        f"{vtc:.2f} and {small:.2f}",
        abs(vtc - paper_vtc) <= NEAR and abs(small - paper_small) <= NEAR,
        f"each within {NEAR} of the paper's",
        f"{vtc - paper_vtc:+.2f} and {small - paper_small:+.2f}",
    )


def _differences(run: SimulationRun, cost: Cost) -> Cells:
    return *service_difference(run, cost), tokens_per_second(run)


def same_measure(printed: Mapping[str, Sequence[float]], cells: Mapping[str, Sequence[float]]) -> Finding:
    """Judge whether our measure is the paper's: maximum and average of the published runs among `cells`."""
    known = {name: cells[MEASURED + name] for name in printed if MEASURED + name in cells}
    other = [name for name, cell in known.items() if any(abs(cell[n] - printed[name][n]) > LAST_DIGIT for n in (0, 1))]
    return Finding(
        "this measure, of the authors' published runs",
        "the table",
        f"maximum and average as printed, in {len(known) - len(other)} of {len(known)}",
        bool(known) and not other,
        "to the last printed digit, in all",
        f"not of {', '.join(other) or 'any, as none was given'}",
    )


def _cells(values: Cells) -> str:
    return " / ".join(f"{value:,.0f}" for value in values)


def _table2(runs: Runs) -> Report:
    report = _table(TABLE2, WeightedTokens(), runs)
    return replace(report, findings=[*report.findings, _order_by_chance(runs)])


def _order_by_chance(runs: Runs) -> Finding:
    """Report why the oracle may be ahead of VTC or behind it."""
    averages = {
        name: [service_difference(runs[f"{name}, copy {seed}"])[1] for seed in range(COPIES)]
        for name in ("VTC (oracle)", "VTC")
    }
    oracle, vtc = averages.values()
    ours = "; ".join(f"{name} {min(found):.0f} to {max(found):.0f}" for name, found in averages.items())
    wins = sum(a < b for a, b in zip(oracle, vtc, strict=True))
    claim = f"the same on {COPIES} copies, arrivals up to a second later"
    why = "it shows how much chance there is in the row on the oracle"
    return Finding(claim, "228 and 252 in one run each", f"{ours}; the oracle is ahead in {wins}", because=why)


def _table3(runs: Runs) -> Report:
    return _table(TABLE3, SloraProfiled(), runs)


def _published(folder: Path, profile: str) -> dict[str, SimulationJob]:
    """Return jobs for the published runs of a table that are in `folder`, by the names of its rows."""
    runs = {"FCFS": "FCFS", "LCF": "LCF", **{f"RPM({limit})": f"LShare__rpm{limit}" for limit in (5, 20, 30)}}
    runs |= {"VTC": f"VTC{profile}", "VTC (predict)": f"VTC_predict{profile}", "VTC (oracle)": f"VTC_oracle{profile}"}
    known = run_names(folder)
    return {MEASURED + name: Measured(folder, f"{run}__real") for name, run in runs.items() if f"{run}__real" in known}


def _table2_runs(folder: Path) -> dict[str, SimulationJob]:
    return {**_published(folder, ""), **later(folder)}


def _table3_runs(folder: Path) -> dict[str, SimulationJob]:
    return _published(folder, "_profile")


ITEMS = (
    item("vtc-table2", "Table 2: service difference, Arena trace", _table2, more=_table2_runs),
    item(
        "vtc-table3",
        "Table 3: service difference under the profiled cost, Arena trace",
        _table3,
        "slora-profiled",
        _table3_runs,
    ),
)
