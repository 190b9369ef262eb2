"""Tables for people: as many columns as fit, the first as wide as it needs or as there is room."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Row = TypeVar("Row")
ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """Text is cut to `width` (the first column's may be wider), numbers never are. Columns with a `rank` are left out
    where there is no room, those with the highest first."""

    head: str
    width: int
    cell: Callable[[Row], str]
    is_text: bool = False
    rank: int = 0


def table(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int) -> list[str]:
    """The heads and then a line per row, of at most `width` characters wherever the numbers allow it."""
    cells = {column: [column.head, *(column.cell(row) for row in rows)] for column in columns}
    widths = {
        column: column.width if column.is_text else max(column.width, *map(len, cells[column])) for column in columns
    }
    while _sum(widths) > width and (optional := [column for column in widths if column.rank]):
        del widths[max(optional, key=lambda column: column.rank)]
    first = next(iter(widths))
    longest = max(map(len, cells[first]))
    widths[first] = max(widths[first], min(longest, widths[first] + width - _sum(widths)))
    shown = ([_fit(cell, widths[column], column.is_text) for cell in cells[column]] for column in widths)
    return [" ".join(line).rstrip() for line in zip(*shown, strict=True)]


def cut(text: str, width: int) -> str:
    """The beginning of what is too long."""
    return text if len(text) <= width else text[: width - 1] + ELLIPSIS


def bar(share: float, width: int) -> str:
    """A share from 0 to 1, drawn."""
    return "#" * round(min(share, 1.0) * width)


def _fit(cell: str, width: int, is_text: bool) -> str:
    return cut(cell, width).ljust(width) if is_text else cell.rjust(width)


def _sum(widths: dict[Column[Row], int]) -> int:
    return sum(widths.values()) + len(widths) - 1
