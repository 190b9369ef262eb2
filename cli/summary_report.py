"""Files that compare configurations: numbers and plots."""

import math
from collections.abc import Sequence

from cli.report import Chart, ChartPoint, Report
from simulation.what_if.front import Unfairness, gap, pareto, slowdown
from simulation.what_if.summary import HEADER, Summary

AXES: tuple[tuple[str, str, Unfairness], ...] = (
    ("throughput and slowdown of clients", "slowdown, times the latency alone", slowdown),
    ("throughput and gap between backlogged clients", "gap, cost units", gap),
)

MOST_LABELS = 6  # maximum number of points that are all labelled


def summary_report(summaries: Sequence[Summary]) -> Report:
    """Return all numbers and a plot per notion of unfairness, with throughput against unfairness and the Pareto
    front."""
    charts = [_front(summaries, *axis) for axis in AXES]
    return Report([HEADER, *(summary.cells() for summary in summaries)], charts)


def _front(summaries: Sequence[Summary], title: str, label: str, unfairness: Unfairness) -> Chart:
    """Return a chart with one point for all configurations at the same place.

    All points are labelled if they are few; otherwise only those on the front.
    """
    front = pareto(summaries, unfairness)
    places: dict[tuple[float, float], list[Summary]] = {}
    for summary in summaries:
        if math.isfinite(unfairness(summary)):
            places.setdefault((unfairness(summary), summary.service), []).append(summary)
    points = [
        ChartPoint(_label(there) if len(places) <= MOST_LABELS or there[0] in front else "", x, y, there[0] in front)
        for (x, y), there in places.items()
    ]
    return Chart(title, label, "throughput, cost units/s", points=points)


def _label(there: Sequence[Summary]) -> str:
    """Return the name of the first configuration at this place, and the number of others."""
    name = f"{there[0].name} (leaves a client out)" if there[0].unanswered else there[0].name
    return name if len(there) == 1 else f"{name} and {len(there) - 1} more"
