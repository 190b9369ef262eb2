"""The figures of all systems as a picture: four panels of bars, one bar for each system."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from lab.bench.flood.figures import Figures
from lab.bench.flood.workload import FLOOD

NAMES_WIDTH, PANEL_WIDTH, BAR_WIDTH = 200, 190, 120  # pixels, as all sizes here
TOP, ROW_HEIGHT, BAR_HEIGHT = 64, 28, 16
PLAIN, FAIR, TEXT = "#b9770e", "#2471a3", "#333333"


@dataclass(frozen=True, slots=True)
class Panel:
    """A measure, its unit, and how its values are written."""

    title: str
    unit: str
    value: Callable[[Figures], float]
    form: str


PANELS = (
    Panel("Quiet user's wait, p99", "seconds to the first token", lambda row: row.flooded.p99, "{:.2f}"),
    Panel("Agent", "finished interactions", lambda row: row.interactions, "{:.0f}"),
    Panel("Flooder's share", "of computed tokens", lambda row: row.shares[FLOOD], "{:.0%}"),
    Panel("All users", "tokens per second", lambda row: row.tokens_per_second, "{:.0f}"),
)


def draw(rows: Sequence[Figures]) -> str:
    """Return the picture as SVG. A bar's length is proportional to its value; the longest fills its panel."""
    width, height = NAMES_WIDTH + len(PANELS) * PANEL_WIDTH, TOP + len(rows) * ROW_HEIGHT + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' font-family="sans-serif" font-size="13" fill="{TEXT}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    parts += [_text(NAMES_WIDTH - 10, _middle(number), row.system, "end") for number, row in enumerate(rows)]
    for number, panel in enumerate(PANELS):
        parts += _panel(panel, NAMES_WIDTH + number * PANEL_WIDTH, rows)
    return "\n".join([*parts, "</svg>\n"])


def _panel(panel: Panel, left: int, rows: Sequence[Figures]) -> list[str]:
    most = max(panel.value(row) for row in rows) or 1
    parts = [_text(left, 24, panel.title, "start", weight="bold"), _text(left, 44, panel.unit, "start")]
    for number, row in enumerate(rows):
        value = panel.value(row)
        length, y = max(1.0, BAR_WIDTH * value / most), TOP + number * ROW_HEIGHT
        colour = FAIR if row.system.startswith("Fairlead") else PLAIN
        parts.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{BAR_HEIGHT}" fill="{colour}"/>')
        parts.append(_text(left + length + 5, _middle(number), panel.form.format(value), "start"))
    return parts


def _middle(number: int) -> int:
    """Return the base line of the text beside a bar."""
    return TOP + number * ROW_HEIGHT + BAR_HEIGHT - 3


def _text(x: float, y: float, text: str, anchor: str, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
