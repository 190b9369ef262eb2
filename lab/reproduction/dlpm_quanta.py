"""DLPM Figures 1, 10 and 11: the trade-off of the quanta, and the number of clients."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from cli.report import Chart, ChartLine
from lab.reproduction.dlpm_system import A10G, PREBLES, TWO_PREBLES, item, programs, system
from lab.reproduction.item import NOT_MEASURED, Finding, Report
from lab.reproduction.measures import fairness
from lab.reproduction.programs import Judge, Programs, Sender, Tree
from simulation.measures import hit_rate, service_rate
from simulation.run import Scenario, SimulationRun
from simulation.simulation_job import SimulationJob

Runs = Mapping[str, SimulationRun]
CLIENT_QUANTA = (1_000, 20_000, 100_000, 500_000)
WORKER_QUANTA = (2_000, 10_000, 40_000, 400_000)
PRINTED = 40_000  # the largest Q^w in the paper
CLIENTS = (5, 10, 20, 50)
HEADER = ("run", "service/s", "Jain index", "hit rate", "end s")


def _rows(runs: Runs) -> list[tuple[object, ...]]:
    return [HEADER, *((name, service_rate(r), fairness(r), hit_rate(r), r.seconds) for name, r in runs.items())]


ONE_BAD = programs(
    60.0,
    Sender("0", Judge(16), 0.25),
    *(Sender(client, Judge(2), 0.25) for client in "123"),
)


def _fig1_jobs() -> dict[str, SimulationJob]:
    jobs: dict[str, SimulationJob] = {
        f"DLPM, Q = {quantum:,}": Scenario(system("DoubleQ", 1, A10G, client_quantum=quantum), ONE_BAD)
        for quantum in CLIENT_QUANTA
    }
    jobs["VTC"] = Scenario(system("VTC", 1, A10G), ONE_BAD)
    jobs["LPM"] = Scenario(system("RR + LPM", 1, A10G), ONE_BAD)
    return jobs


def _fig1(runs: Runs) -> Report:
    points = {name: (fairness(run), service_rate(run)) for name, run in runs.items()}
    dlpm = [points[f"DLPM, Q = {quantum:,}"] for quantum in CLIENT_QUANTA]
    lines = [ChartLine("DLPM", [j for j, _ in dlpm], [s for _, s in dlpm])]
    lines += [ChartLine(name, [points[name][0]], [points[name][1]]) for name in ("VTC", "LPM")]
    chart = Chart("fairness and throughput", "Jain's index of service rates", "service units/s", lines)
    return Report(_rows(runs), [chart], [_frontier(points), _trade(dlpm)])


def _frontier(points: Mapping[str, tuple[float, float]]) -> Finding:
    """Judge Figure 1; `points` are Jain's index and service rate by run."""
    (vtc, _), (unfair, lpm) = points["VTC"], points["LPM"]
    dlpm = {name: point for name, point in points.items() if name.startswith("DLPM")}
    ratios = [f"{name} {jain / vtc:.2f} and {rate / lpm:.2f}" for name, (jain, rate) in dlpm.items()]
    return Finding(
        "Jain's index / service rate",
        "DLPM: throughput comparable to LPM, fairness close to VTC",
        "; ".join(f"{name} {jain:.2f} / {service:,.0f}" for name, (jain, service) in points.items()),
        any(rate >= 0.95 * lpm and abs(jain - vtc) < abs(jain - unfair) for jain, rate in dlpm.values()),
        "at some Q a service rate of at least 0.95 of LPM's, and an index nearer to VTC's than to LPM's",
        f"index over VTC's and rate over LPM's: {'; '.join(ratios)}; LPM's index over VTC's is {unfair / vtc:.2f}",
    )


def _trade(dlpm: Sequence[tuple[float, float]]) -> Finding:
    (fair, slow), (unfair, fast) = dlpm[0], dlpm[-1]
    quanta = f"Q = {CLIENT_QUANTA[0]:,} to {CLIENT_QUANTA[-1]:,}"
    return Finding(
        f"DLPM at {', '.join(f'Q = {quantum:,}' for quantum in CLIENT_QUANTA)}",
        "a larger Q gains throughput for fairness",
        f"service rate {_series([rate for _, rate in dlpm])}; index {', '.join(f'{jain:.3f}' for jain, _ in dlpm)}",
        fast >= 1.02 * slow and unfair < fair,
        "from the smallest to the largest Q the rate grows by at least 2 % and the index falls",
        f"from {quanta} the rate changes by {fast / slow - 1:+.1%}, the index by {unfair - fair:+.3f}",
    )


MISBEHAVING = Tree(3, question_tokens=1000, common_tokens=900)


def trees(first: Tree) -> Programs:
    """Return Figure 10's workload, in which client 0 sends `first`."""
    return programs(15.0, Sender("0", first, 0.8), *(Sender(client, Tree(3), 0.8) for client in "12"))


def _fig10_jobs() -> dict[str, SimulationJob]:
    jobs: dict[str, SimulationJob] = {}
    for case, first in CASES.items():
        for quantum in WORKER_QUANTA:
            name = f"{case}, DoubleQ, Q^w = {quantum:,}"
            jobs[name] = Scenario(system("DoubleQ", 4, A10G, worker_quantum=quantum), trees(first))
        for scheduler in OTHERS:
            jobs[f"{case}, {scheduler}"] = Scenario(system(scheduler, 4, A10G), trees(first))
    return jobs


CASES = {"one misbehaving": MISBEHAVING, "all well-behaved": Tree(3)}
OTHERS = ("RR + LPM", "VTC", *PREBLES)


def _fig10(runs: Runs) -> Report:
    charts, findings = [], []
    for case in CASES:
        sweep = [runs[f"{case}, DoubleQ, Q^w = {quantum:,}"] for quantum in WORKER_QUANTA]
        rates = [service_rate(run) for run in sweep]
        others = {name: service_rate(runs[f"{case}, {name}"]) for name in OTHERS}
        lines = [ChartLine("DoubleQ", WORKER_QUANTA, rates)]
        lines += [ChartLine(name, WORKER_QUANTA, [value] * len(WORKER_QUANTA)) for name, value in others.items()]
        charts.append(Chart(case, "Q^w, service units", "service units/s", lines))
        findings.append(_settles(case, rates, others))
    findings.append(_unfairer([fairness(runs[f"one misbehaving, DoubleQ, Q^w = {q:,}"]) for q in (2_000, PRINTED)]))
    return Report(_rows(runs), charts, findings)


def _settles(case: str, rates: Sequence[float], others: Mapping[str, float]) -> Finding:
    above = [f"{name} by {value / rates[-1] - 1:.1%}" for name, value in others.items() if value >= rates[-1]]
    return Finding(
        f"throughput at Q^w = {', '.join(f'{quantum:,}' for quantum in WORKER_QUANTA)}; {case}",
        "grows with Q^w, settles above all others",
        f"{_series(rates)}; {', '.join(f'{name} {value:,.0f}' for name, value in others.items())}",
        rates[-1] >= 1.02 * rates[0] and not above,
        "the last at least 2 % above the first, and above each of the others",
        f"it changes by {rates[-1] / rates[0] - 1:+.1%}; above it: {', '.join(above) or 'none'}",
    )


def _unfairer(jain: Sequence[float]) -> Finding:
    return Finding(
        "Jain's index, one misbehaving",
        "falls, from 0.855 at 2,000 to 0.83 at 40,000",
        f"{jain[0]:.3f} at 2,000, {jain[1]:.3f} at 40,000",
        jain[1] <= jain[0] - 0.005,
        "lower by at least 0.005",
        f"it changes by {jain[1] - jain[0]:+.4f}",
    )


def _series(values: Sequence[float]) -> str:
    return ", ".join(f"{value:,.0f}" for value in values)


ONE_GPU = {"DLPM": "DoubleQ", "LPM": "RR + LPM", "VTC": "VTC"}


FIG11 = {
    **{f"{n} clients": programs(60.0, *(Sender(str(m), Judge(4), 1.0 / n) for m in range(n))) for n in CLIENTS},
    "trees": programs(60.0, *(Sender(str(m), Tree(3), 0.1) for m in range(5))),
}


def _fig11_jobs() -> dict[str, SimulationJob]:
    return {
        f"{case}, {name}": Scenario(system(scheduler, 1, A10G), workload)
        for case, workload in FIG11.items()
        for name, scheduler in ONE_GPU.items()
    }


def _fig11(runs: Runs) -> Report:
    rates = {
        name: [service_rate(runs[f"{clients} clients, {name}"]) for clients in CLIENTS]
        for name in ("DLPM", "LPM", "VTC")
    }
    lines = [ChartLine(name, CLIENTS, values) for name, values in rates.items()]
    trees = ", ".join(f"{name} {service_rate(runs[f'trees, {name}']):,.0f}" for name in ONE_GPU)
    hits = ", ".join(
        f"{name} {fmean(hit_rate(r) for n, r in runs.items() if _is_sweep(n, name)):.2f}" for name in rates
    )
    findings = [
        _scales(rates, hits),
        Finding("the same with 5 clients that send trees of three branches", SCALES, trees, because=NOT_MEASURED),
    ]
    return Report(_rows(runs), [Chart("service rate", "clients", "service units/s", lines)], findings)


def _is_sweep(run: str, scheduler: str) -> bool:
    return run.endswith(f"clients, {scheduler}")


SCALES = "DLPM comparable to LPM at any number; VTC consistently below"


def _scales(rates: Mapping[str, Sequence[float]], hits: str) -> Finding:
    near = [d / lpm for d, lpm in zip(rates["DLPM"], rates["LPM"], strict=True)]
    below = [v / d for d, v in zip(rates["DLPM"], rates["VTC"], strict=True)]
    return Finding(
        f"service rate with {', '.join(map(str, CLIENTS))} clients",
        SCALES,
        "; ".join(f"{name} {_series(values)}" for name, values in rates.items()),
        all(abs(ratio - 1) <= 0.05 for ratio in near) and all(ratio <= 0.95 for ratio in below),
        "at every number DLPM within 5 % of LPM, and VTC at least 5 % below DLPM",
        f"DLPM over LPM {_ratios(near)}; VTC over DLPM {_ratios(below)}; mean hit rates: {hits}",
    )


def _ratios(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


ITEMS = (
    item(
        "dlpm-fig1",
        "Figure 1: fairness and throughput by Q^u",
        "Llama-3.2-3B, one A10G; the paper does not say which workload: evaluations, one client with 16 dimensions, "
        "three with two.",
        _fig1_jobs(),
        _fig1,
    ),
    item(
        "dlpm-fig10",
        "Figure 10: throughput and fairness by Q^w",
        "Llama-3.2-3B, four A10G (the GPU is not stated); trees of three branches, three clients. The misbehaving "
        "one's questions begin with the same 900 tokens: only then does its matched share always exceed "
        f"Preble's threshold (section 7.1). {TWO_PREBLES}",
        _fig10_jobs(),
        _fig10,
    ),
    item(
        "dlpm-fig11",
        "Figure 11: service rate by the number of clients",
        "Llama-3.2-3B, one A10G; the paper does not say which workload: evaluations in four dimensions.",
        _fig11_jobs(),
        _fig11,
    ),
)
