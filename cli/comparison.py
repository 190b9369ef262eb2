"""Configurations side by side: run, on the screen, and as the fronts that `fairlead tune` draws."""

import math
from collections.abc import Iterator, Sequence

from cli.jobs import run_jobs
from fairlead.errors import listed
from simulation.reproduction.item import Chart, Line, Report
from simulation.reproduction.run import Run, Scenario
from simulation.what_if import HEADER, Summary, Unfairness, gap, pareto, recommended, waiting

AXES: tuple[tuple[str, str, Unfairness], ...] = (
    ("the worst client's wait", "mean TTFT of the worst client, s", waiting),
    ("the gap between backlogged clients", "gap, cost units", gap),
)


def results(scenarios: dict[str, Scenario], processes: int, calls: int) -> Iterator[tuple[str, Run]]:
    """Each name's run, of `calls` calls; equal scenarios are run once."""
    for job, result in run_jobs(scenarios.values(), processes, calls):
        for name, wanted in scenarios.items():
            if wanted == job:
                yield name, result


def table(summaries: Sequence[Summary]) -> str:
    """For the screen."""
    cells = [HEADER, *(tuple(_text(value) for value in summary.cells()) for summary in summaries)]
    widths = [max(len(str(row[column])) for row in cells) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(str(cell).rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells
    )


def _text(value: object) -> str:
    if isinstance(value, float):
        return "never" if value == math.inf else f"{value:,.3f}" if abs(value) < 10 else f"{value:,.0f}"
    return "-" if value is None else str(value)


def unanswered(summaries: Sequence[Summary]) -> list[str]:
    """Who was not answered at all, by configuration."""
    return [f"{s.name}: no call answered of {listed(s.unanswered)}" for s in summaries if s.unanswered]


def front_report(summaries: Sequence[Summary]) -> Report:
    """What `tune` writes: all configurations, and a front for each notion of fairness."""
    charts = [_front_chart(summaries, *axis) for axis in AXES]
    return Report([HEADER, *(summary.cells() for summary in summaries)], charts)


def _front_chart(summaries: Sequence[Summary], title: str, label: str, unfairness: Unfairness) -> Chart:
    """A point for each configuration, those that leave a client out named so, and the front."""
    front = pareto(summaries, unfairness)
    points = [
        Line(s.name + " (leaves a client out)" * bool(s.unanswered), [unfairness(s)], [s.service])
        for s in summaries
        if math.isfinite(unfairness(s))
    ]
    line = Line("Pareto front", [unfairness(s) for s in front], [s.service for s in front])
    return Chart(f"throughput and {title}", label, "service/s", [line, *points])


def recommendation(summaries: Sequence[Summary]) -> list[str]:
    """A front for each notion of fairness, and a sentence; nothing when every configuration leaves somebody out."""
    parts = []
    for title, _, unfairness in AXES:
        front = pareto(summaries, unfairness)
        if front:
            parts.append(f"Pareto front, throughput and {title}:\n{table(front)}")
            parts.append(f"recommended for {title}: {_sentence(recommended(front, unfairness))}")
    return parts


def _sentence(best: Summary) -> str:
    calls = best.answered + best.refused
    text = f"{best.name}: {best.service:,.0f} service/s, the worst client waits {best.worst_client:.2f} s on average"
    text += f", gap {best.gap:,.0f}"
    if best.refused:
        text += f"; {best.refused:,} of {calls:,} calls are refused, to one client {1 - best.least_answered:.0%} of its"
    return text
