"""Configurations compared as numbers and pictures on disk."""

import math
from collections.abc import Sequence

from simulation.reproduction.item import Chart, Point, Report
from simulation.what_if.front import Unfairness, gap, pareto, slowdown
from simulation.what_if.summary import HEADER, Summary

AXES: tuple[tuple[str, str, Unfairness], ...] = (
    ("throughput and slowdown of clients within their share", "slowdown p99, times the latency alone", slowdown),
    ("throughput and gap between backlogged clients", "gap, cost units", gap),
)


def summary_report(summaries: Sequence[Summary]) -> Report:
    """All numbers, and a picture of the fronts: throughput against each notion of unfairness."""
    charts = [_front(summaries, *axis) for axis in AXES]
    return Report([HEADER, *(summary.cells() for summary in summaries)], charts)


def _front(summaries: Sequence[Summary], title: str, label: str, unfairness: Unfairness) -> Chart:
    """A point for each configuration; those of the front, and those that leave a client out, are named."""
    front = pareto(summaries, unfairness)
    points = [
        Point(_label(s, s in front), unfairness(s), s.service, s in front)
        for s in summaries
        if math.isfinite(unfairness(s))
    ]
    return Chart(title, label, "throughput, cost units/s", points=points)


def _label(summary: Summary, on_front: bool) -> str:
    return f"{summary.name} (leaves a client out)" if summary.unanswered else summary.name if on_front else ""
