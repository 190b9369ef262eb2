"""Cells of CSV files that spreadsheets open: what a caller has named must not be computed."""

from typing import TypeVar

# A text that begins so is a formula to a spreadsheet, in some also with full-width letters (OWASP, CSV Injection).
FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
MARK = "'"
Cell = TypeVar("Cell")


def inert(value: Cell) -> Cell | str:
    """Return `value`; a text that a spreadsheet would compute, or that has a MARK already, behind a MARK."""
    return f"{MARK}{value}" if isinstance(value, str) and value.startswith((*FORMULA, MARK)) else value
