"""A report with rows of numbers, and charts that show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One curve of a chart, with its label."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """One labelled configuration in a chart; a line joins the points on the front."""

    label: str
    x: float
    y: float
    on_front: bool


@dataclass(frozen=True, slots=True)
class Chart:
    """A panel with curves, bars or points.

    With `names`, the labels of x = 0, 1, ..., `lines` are drawn as bars; `points` are drawn alone.
    """

    title: str
    x: str
    y: str
    lines: Sequence[ChartLine] = ()
    names: Sequence[str] = ()
    points: Sequence[ChartPoint] = ()


def bars(title: str, y: str, names: Sequence[str], values: Mapping[str, Sequence[float]]) -> Chart:
    """Make a chart with one bar per label in `values` at each name."""
    lines = [ChartLine(label, range(len(names)), heights) for label, heights in values.items()]
    return Chart(title, "", y, lines, names=names)


@dataclass(frozen=True, slots=True)
class Report:
    """Rows of numbers, the first with the column names, and charts in rows of `columns` panels."""

    rows: Sequence[Sequence[object]]
    charts: Sequence[Chart] = ()
    columns: int = field(default=3, kw_only=True)
