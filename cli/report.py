"""A report: rows of numbers, and the charts that show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One curve of a chart."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """One configuration of a chart, with its label beside it; those on the front are joined by a line."""

    label: str
    x: float
    y: float
    on_front: bool


@dataclass(frozen=True, slots=True)
class Chart:
    """One panel. With `names`, those of x = 0, 1, ..., the lines are drawn as bars; `points` are drawn alone."""

    title: str
    x: str
    y: str
    lines: Sequence[ChartLine] = ()
    log_y: bool = False
    names: Sequence[str] = ()
    points: Sequence[ChartPoint] = ()


def bars(title: str, y: str, names: Sequence[str], values: Mapping[str, Sequence[float]]) -> Chart:
    """At each name one bar of each label in `values`."""
    lines = [ChartLine(label, range(len(names)), heights) for label, heights in values.items()]
    return Chart(title, "", y, lines, names=names)


@dataclass(frozen=True, slots=True)
class Report:
    """Rows of numbers, of which the first names the columns, and panels of charts, `columns` of them side by side."""

    rows: Sequence[Sequence[object]]
    charts: Sequence[Chart] = ()
    columns: int = field(default=3, kw_only=True)
