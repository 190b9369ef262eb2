"""VTC's charts, rows and verdicts of service over time, shared by its figures."""

from cli.report import Chart, ChartLine
from lab.reproduction.item import Finding, Report
from lab.reproduction.measures import Curve, all_backlogged, gap, gap_since, gap_within, rate_around
from lab.reproduction.vtc_system import BOUND, SECONDS, Runs
from simulation.measures import received
from simulation.run import SimulationRun


def curves(run: SimulationRun) -> dict[str, list[float]]:
    """Return each client's accumulated service by second."""
    return {client: received(run, client) for client in run.clients}


def rates(run: SimulationRun, seconds: int) -> list[ChartLine]:
    """Return each client's service rate over time as a line."""
    times = range(0, seconds, 5)
    return [
        ChartLine(f"client {client}", times, [rate_around(curve, time) for time in times])
        for client, curve in curves(run).items()
    ]


def rate(curve: Curve, start: int, stop: int) -> float:
    """Return the mean service per second between two seconds."""
    return (curve[min(stop, len(curve) - 1)] - curve[start]) / (stop - start)


def gap_chart(runs: Runs) -> Chart:
    """Chart the absolute difference in accumulated service."""
    lines = [ChartLine(name, range(SECONDS), gap(curves(run))[:SECONDS]) for name, run in runs.items()]
    return Chart("difference of accumulated service", "seconds", "service units", lines)


def backlog_chart(runs: Runs) -> Chart:
    """Chart the difference of service received since all clients are backlogged, beside the theorem's bound."""
    lines = []
    for name, run in runs.items():
        start, values = _since_backlogged(run)
        lines.append(ChartLine(name, range(start, SECONDS), values))
    lines.append(ChartLine("bound of Theorem 4.4", [0.0, float(SECONDS)], [float(BOUND)] * 2))
    return Chart("difference of service since both clients wait", "seconds", "service units", lines)


def _since_backlogged(run: SimulationRun) -> tuple[int, list[float]]:
    """Return the start of the longest interval in which all clients wait (else 0), and the gap by second since then."""
    start, _ = max(all_backlogged(run), key=lambda span: span[1] - span[0], default=(0, 0))
    return start, gap_since(curves(run), start)[start:SECONDS]


def gap_rows(runs: Runs) -> list[tuple[object, ...]]:
    """Return the gap and each client's service every ten seconds."""
    rows: list[tuple[object, ...]] = [("scheduler", "second", "gap", "client", "service")]
    for name, run in runs.items():
        served, gaps = curves(run), gap(curves(run))
        rows += [
            (name, second, gaps[second], client, curve[second])
            for second in range(0, min(SECONDS, len(gaps)), 10)
            for client, curve in served.items()
        ]
    return rows


def bounded_against_growing(runs: Runs) -> Finding:
    """Judge the conclusion of Figures 3, 7 and 8."""
    served, spans = curves(runs["VTC"]), all_backlogged(runs["VTC"])
    vtc = max((gap_within(served, start, stop) for start, stop in spans), default=0.0)
    fcfs = _since_backlogged(runs["FCFS"])[1]
    half, end = fcfs[len(fcfs) // 2], fcfs[-1]
    return Finding(
        "difference of service while both clients wait",
        "bounded under VTC, grows without limit under FCFS",
        f"VTC at most {vtc:,.0f} in any interval (bound {BOUND:,}); FCFS {half:,.0f} half-way, {end:,.0f} in the end",
        bool(spans) and vtc <= BOUND and end > 1.5 * half and end > 4 * vtc,
        "VTC's at most the bound; FCFS's in the end above 1.5 times that half-way, and above 4 times VTC's highest",
        f"VTC's is {vtc / BOUND:.0%} of the bound; FCFS's grows from {half:,.0f} to {end:,.0f}",
    )


def equal_rates(run: SimulationRun, start: int, stop: int) -> Finding:
    """Judge whether two backlogged clients receive equal service rates."""
    first, second = (rate(curve, start, stop) for curve in curves(run).values())
    ours = f"{first:,.0f} and {second:,.0f} service units per second"
    holds = abs(first / second - 1) <= 0.05
    return Finding("service rates under VTC", "the same", ours, holds, "within 5 %", f"{first / second - 1:+.1%} apart")


def two_panels(runs: Runs, gaps: Chart, findings: list[Finding]) -> Report:
    """Return a report of the gap's chart, VTC's service rates beside it, and these findings."""
    rates_chart = Chart("service rate under VTC", "seconds", "service units/s", rates(runs["VTC"], SECONDS))
    return Report(gap_rows(runs), [gaps, rates_chart], findings)
