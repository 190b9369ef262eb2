"""Writer for reports: numbers as CSV, charts as SVG."""

import csv
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from cli.report import Chart, Report
from serving.spreadsheet import inert

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL_INCHES = 5.0, 3.4
MOST_NAMED = 10  # maximum lines in a legend; with more, only the CSV file names them
MOST_VALUED = 12  # maximum bars that are labelled with their values
HUNDRED, MILLION = 100, 1_000_000


def write(folder: Path, name: str, report: Report, title: str = "") -> None:
    """Write `NAME.csv` and, if there are charts and matplotlib is installed, `NAME.svg` with this title."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([_plain(value) for value in row] for row in report.rows)
    if report.charts and can_draw():
        _draw(folder / f"{name}.svg", report.charts, report.columns, title)


def can_draw() -> bool:
    """Return whether matplotlib is installed; only the extra `demo` installs it."""
    return find_spec("matplotlib") is not None


def _plain(value: object) -> object:
    return round(value, 4) if isinstance(value, float) else inert(value)


def _draw(path: Path, charts: Sequence[Chart], most: int, title: str) -> None:
    """Draw the charts, `most` per row. Equal charts give equal bytes."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = path.stem
    from matplotlib import pyplot

    columns = min(len(charts), most)
    rows = -(-len(charts) // columns)
    size = PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    if title:
        figure.suptitle(title)
    for axis, chart in zip(axes.flat, charts, strict=False):
        (_points if chart.points else _bars if chart.names else _curves)(axis, chart)
        crowded = len(chart.lines) > MOST_NAMED
        note = f" ({len(chart.lines)} lines, named in the CSV file)" if crowded else ""
        axis.set_title(chart.title + note, fontsize="medium")
        axis.set_xlabel(chart.x)
        axis.set_ylabel(chart.y)
        axis.yaxis.set_major_formatter(_with_commas)
        axis.grid(alpha=0.3)
        if len(chart.lines) > 1 and not crowded:
            # Beside the panel, because inside it the legend would hide lines.
            axis.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for axis in list(axes.flat)[len(charts) :]:
        axis.set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _with_commas(value: float, _position: int | None = None) -> str:
    """Format an axis tick in full; matplotlib's default would factor a power of ten out of all ticks."""
    return f"{value:,.6g}" if abs(value) < MILLION else f"{value:,.0f}"


def _curves(axis: "Axes", chart: Chart) -> None:
    for line in chart.lines:
        axis.plot(line.xs, line.ys, label=line.label, linewidth=1.2, marker="." if len(line.xs) <= 12 else None)


def _points(axis: "Axes", chart: Chart) -> None:
    """Draw points and labels of equal colour.

    From left to right, labels are alternately above and below, so that neighbours do not overlap.
    """
    ordered = sorted(chart.points, key=lambda point: (point.x, point.y))
    front = [point for point in ordered if point.on_front]
    axis.plot([point.x for point in front], [point.y for point in front], linewidth=1.0, color="tab:green")
    for number, point in enumerate(ordered):
        color = "tab:green" if point.on_front else "dimgray"
        axis.plot([point.x], [point.y], marker="o", color=color)
        side, dx = ("right", -5) if point.x > ordered[-1].x / 2 else ("left", 5)
        text = axis.annotate(point.label, (point.x, point.y), (dx, -12 if number % 2 else 5), color=color, ha=side)
        # A long label may cross the panel's edge; the layout does not shrink the panel for it.
        text.set(anncoords="offset points", fontsize="small", in_layout=False)
    axis.margins(0.2)
    axis.set_xlim(left=0)


def _bars(axis: "Axes", chart: Chart) -> None:
    width = 0.8 / len(chart.lines)
    for number, line in enumerate(chart.lines):
        left = (number - len(chart.lines) / 2) * width
        drawn = axis.bar([x + left for x in line.xs], line.ys, width, align="edge", label=line.label)
        if len(chart.lines) * len(chart.names) <= MOST_VALUED:
            axis.bar_label(drawn, [f"{y:,.0f}" if y >= HUNDRED else f"{y:.3g}" for y in line.ys], fontsize="x-small")
    axis.margins(y=0.1)  # space for the value above the highest bar
    axis.set_xticks(range(len(chart.names)), chart.names, rotation=25, ha="right", fontsize="small")
