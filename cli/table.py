"""Text tables with as many columns as fit. Texts are as wide as they need or as space permits, the first first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Row = TypeVar("Row")
ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column of a table, where text is cut to `width` if there is no more space, but numbers never are.

    Columns with a `rank` are dropped when space is short, the highest rank first.
    """

    head: str
    width: int
    cell: Callable[[Row], str]
    is_text: bool = False
    rank: int = 0


def table(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int) -> list[str]:
    """Return the heading and a line per row, of at most `width` characters if the numbers allow it."""
    cells = {column: [column.head, *(column.cell(row) for row in rows)] for column in columns}
    widths = {
        column: column.width if column.is_text else max(column.width, *map(len, cells[column])) for column in columns
    }
    while _sum(widths) > width and (optional := [column for column in widths if column.rank]):
        del widths[max(optional, key=lambda column: column.rank)]
    for column in widths:
        if column.is_text:  # the names that stand first have the space that is left
            longest = max(map(len, cells[column]))
            widths[column] = max(widths[column], min(longest, widths[column] + width - _sum(widths)))
    shown = ([_fit(cell, widths[column], column.is_text) for cell in cells[column]] for column in widths)
    return [" ".join(line).rstrip() for line in zip(*shown, strict=True)]


def cut(text: str, width: int) -> str:
    """Return `text`, cut to `width` characters with an ellipsis at the end."""
    return text if len(text) <= width else text[: width - 1] + ELLIPSIS


def bar(share: float, width: int) -> str:
    """Return a bar for a share from 0 to 1; the full bar has `width` characters."""
    return "#" * round(min(share, 1.0) * width)


def _fit(cell: str, width: int, is_text: bool) -> str:
    return cut(cell, width).ljust(width) if is_text else cell.rjust(width)


def _sum(widths: dict[Column[Row], int]) -> int:
    return sum(widths.values()) + len(widths) - 1
