"""VTC section 5.3 and B.2: 27 clients of Chatbot Arena on an A10G."""

from collections.abc import Callable, Mapping
from pathlib import Path

from fairlead.cost import COSTS, Cost
from simulation.reproduction.item import Chart, Finding, Item, Job, Line, Report, Study
from simulation.reproduction.measures import mean_wait, response_times, service_difference, tokens_per_second
from simulation.reproduction.run import Run, Scenario
from simulation.reproduction.vtc_synthetic import A10G, KV_TOKENS
from simulation.sources import SourceMissing, Sources
from simulation.spec import slora
from simulation.traces import Trace

Runs = Mapping[str, Run]
FILE = "vtc_arena27.csv.gz"
SECONDS = 300  # of arrivals: the half of the trace that is published
LIMITS = (5, 10, 15, 20, 30)
SETUP = (
    f"{FILE}: the first five minutes of the trace that the authors published (they ran ten), each model a client. "
    "Llama-2-7b on an A10G, 10,000 KV tokens, S-LoRA's batching."
)
PROFILED_UNIT = 10.0  # the paper's figures under the profiled cost are a tenth of its formula's
HEADER = ("scheduler", "max diff", "avg diff", "diff var", "throughput, tokens/s")
# Max diff, average, variance, throughput.
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
POLICIES = {
    "FCFS": "fcfs",
    "LCF": "lcf",
    "VTC": "vtc",
    "VTC (predict)": "vtc-predict",
    "VTC (oracle)": "vtc-oracle",
}


def _jobs(traces: Path, cost: str = "weighted-tokens") -> dict[str, Job]:
    workload = Trace(traces / FILE)
    jobs: dict[str, Job] = {
        name: Scenario(slora(A10G, policy, KV_TOKENS, cost), workload) for name, policy in POLICIES.items()
    }
    for limit in LIMITS:
        jobs[f"RPM({limit})"] = Scenario(slora(A10G, "fcfs", KV_TOKENS, cost, limit), workload)
    return jobs


def _item(name: str, figure: str, read: Callable[[Runs], Report], cost: str = "weighted-tokens") -> Item:
    def study(sources: Sources) -> Study:
        if sources.traces is None:
            raise SourceMissing("needs the folder of the traces: --traces or FAIRLEAD_TRACES")
        return Study(SETUP, _jobs(sources.traces, cost), read)

    return Item(name, f"VTC {figure}", study)


def _table(
    printed: Mapping[str, tuple[float, float, float, float]], cost: Cost, runs: Runs, unit: float = 1.0
) -> Report:
    ours = {}
    for name, run in runs.items():
        most, mean, variance = service_difference(run, SECONDS, cost)
        ours[name] = most / unit, mean / unit, variance / unit**2, tokens_per_second(run)
    rows: list[tuple[object, ...]] = [HEADER, *((name, *values) for name, values in ours.items())]
    findings = [Finding(name, _cells(paper), _cells(ours[name]), None) for name, paper in printed.items()]
    order = [("VTC", "FCFS"), ("VTC", "LCF"), ("VTC (oracle)", "VTC"), ("RPM(5)", "RPM(20)"), ("RPM(20)", "RPM(30)")]
    for better, worse in order:
        paper = f"{printed[better][1]:.0f} < {printed[worse][1]:.0f}"
        holds = ours[better][1] < ours[worse][1]
        got = f"{ours[better][1]:.0f} and {ours[worse][1]:.0f}"
        because = "" if holds else "on five minutes of trace, differences this small change sign with the workload"
        findings.append(Finding(f"average difference: {better} below {worse}", paper, got, holds, because))
    kept = ours["VTC"][3] / ours["FCFS"][3], ours["RPM(5)"][3] / ours["VTC"][3]
    findings.append(
        Finding(
            "throughput: VTC against FCFS, RPM(5) against VTC",
            f"{779 / 777:.2f} and {340 / 779:.2f}",
            f"{kept[0]:.2f} and {kept[1]:.2f}",
            abs(kept[0] - 1) < 0.03 and kept[1] < 0.7,
        )
    )
    return Report(rows, (), findings)


def _cells(values: tuple[float, float, float, float]) -> str:
    return " / ".join(f"{value:,.0f}" for value in values)


def _table2(runs: Runs) -> Report:
    return _table(TABLE2, COSTS["weighted-tokens"](), runs)


def _table3(runs: Runs) -> Report:
    return _table(TABLE3, COSTS["profiled"](), runs, PROFILED_UNIT)


def _by_volume(run: Run) -> list[str]:
    return sorted(run.clients, key=lambda client: (-len(run.of(client)), client))


def _selected(run: Run) -> list[str]:
    """The two that send most and two of medium volume: the 13th and 14th of 27, as in the paper."""
    ordered = _by_volume(run)
    return [*ordered[:2], *ordered[12:14]]


def _responses(runs: Runs, names: tuple[str, ...], clients: list[str]) -> tuple[list[tuple[object, ...]], list[Chart]]:
    rows: list[tuple[object, ...]] = [("scheduler", "client", "second", "mean first-token latency")]
    charts = []
    for name in names:
        lines = []
        for client in clients:
            xs, ys = response_times(runs[name].of(client), SECONDS)
            lines.append(Line(client, xs, ys))
            rows += [(name, client, x, y) for x, y in zip(xs, ys, strict=True)]
        charts.append(Chart(f"{name}: response time", "seconds", "seconds to first token", lines))
    return rows, charts


def _fig12(runs: Runs) -> Report:
    clients = _selected(runs["VTC"])
    rows, charts = _responses(runs, ("FCFS", "VTC"), clients)
    waits = {
        name: [max(response_times(runs[name].of(client), SECONDS)[1]) for client in clients] for name in ("FCFS", "VTC")
    }
    ours = "; ".join(f"{name} {', '.join(f'{wait:.1f}' for wait in values)} s" for name, values in waits.items())
    holds = min(waits["FCFS"]) > 5 and max(waits["VTC"][2:]) < min(waits["FCFS"]) and max(waits["VTC"][:2]) > 5
    paper = "FCFS: all clients' rise; VTC: only those of clients over their share"
    claim = "highest response times: two clients that send most, two of medium volume"
    return Report(rows, charts, [Finding(claim, paper, ours, holds)])


def _fig13(runs: Runs) -> Report:
    names = tuple(f"RPM({limit})" for limit in (5, 15, 20, 30))
    rows, charts = _responses(runs, names, _selected(runs["VTC"]))
    waits = [mean_wait(runs[name].records) for name in (*names, "FCFS")]
    ours = ", ".join(f"{wait:.1f}" for wait in waits) + " s"
    finding = Finding(
        "mean response time at 5, 15, 20, 30 per minute, and FCFS",
        "grows with the limit, towards FCFS",
        ours,
        waits == sorted(waits),
    )
    return Report(rows, charts, [finding])


def _fig14(runs: Runs) -> Report:
    names = [f"RPM({limit})" for limit in LIMITS]
    ours = {name: tokens_per_second(runs[name]) for name in (*names, "VTC")}
    rows: list[tuple[object, ...]] = [("scheduler", "tokens/s"), *ours.items()]
    limits = [float(limit) for limit in LIMITS]
    lines = [Line("RPM", limits, [ours[name] for name in names]), Line("VTC", limits, [ours["VTC"]] * len(limits))]
    holds = all(ours[name] < ours["VTC"] for name in names) and ours[names[0]] < ours[names[-1]]
    finding = Finding(
        "throughput by limit",
        "340 (5), 694 (20), 747 (30); VTC 779: RPM always lower",
        ", ".join(f"{value:.0f} ({name})" for name, value in ours.items()),
        holds,
    )
    return Report(rows, [Chart("throughput", "requests per minute", "tokens/s", lines)], [finding])


def _fig18(runs: Runs) -> Report:
    names = ("FCFS", "LCF", "VTC", "VTC (predict)", "VTC (oracle)", "RPM(20)")
    order = _by_volume(runs["VTC"])
    rows, charts = _responses(runs, names, order)
    quiet, loud = order[9:], order[:2]
    waits = {name: [mean_wait(r for c in group for r in runs[name].of(c)) for group in (quiet, loud)] for name in names}
    ours = "; ".join(f"{name} {small:.1f} and {large:.1f} s" for name, (small, large) in waits.items())
    fair = max(waits[name][0] for name in ("LCF", "VTC", "VTC (predict)", "VTC (oracle)"))
    paper = "VTC keeps the quiet clients' low, as only LCF does besides"
    claim = "response times with the profiled cost: the 18 quietest clients and the two loudest"
    return Report(rows, charts, [Finding(claim, paper, ours, fair < waits["FCFS"][0] / 2)])


ITEMS = (
    _item("vtc-fig12", "Figure 12: response times under FCFS and VTC, Arena trace", _fig12),
    _item("vtc-fig13", "Figure 13: response times under rate limits, Arena trace", _fig13),
    _item("vtc-fig14", "Figure 14: throughput under rate limits, Arena trace", _fig14),
    _item("vtc-table2", "Table 2: service difference, Arena trace", _table2),
    _item("vtc-table3", "Table 3: service difference under the profiled cost, Arena trace", _table3, "profiled"),
    _item("vtc-fig18", "Figure 18: response times of all clients under the profiled cost", _fig18, "profiled"),
)
