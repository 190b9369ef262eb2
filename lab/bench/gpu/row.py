"""What a check finds."""

from collections.abc import Mapping
from dataclasses import dataclass

Figure = float | int | str | bool


@dataclass(frozen=True, slots=True)
class Row:
    """One result of a check: the case that was measured, and its figures by name; a name ends in the figure's unit."""

    case: str
    figures: Mapping[str, Figure]

    def __str__(self) -> str:
        return f"{self.case}: " + ", ".join(f"{name} {shown(figure)}" for name, figure in self.figures.items())


class CheckFailed(Exception):
    """Some cases of a check failed; its rows say which."""


def shown(figure: Figure) -> str:
    """Return the figure with three significant digits, or as it is if it is no fraction."""
    if not isinstance(figure, float):
        return f"{figure:,}" if type(figure) is int else str(figure)
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"
