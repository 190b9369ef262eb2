"""Traces and logs in JSON lines, plain or gzip. The fields of the lines tell their format, which is one in a file."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from fairlead.errors import InvalidRequest
from simulation.aiperf import MultiTurnLines, SingleTurnLines
from simulation.json_fields import Fields, as_object
from simulation.mooncake import BailianLines, MooncakeLines
from simulation.openai_logs import RequestLog
from simulation.tables import UNREADABLE, open_bytes
from simulation.trace_rows import TraceContents, TraceRow


class LineFormat(Protocol):
    """A format of lines, with the rows of one file."""

    @property
    def name(self) -> str:
        """The format's name in error messages."""

    @property
    def marks(self) -> frozenset[str]:
        """The fields of which each line has at least one, and by which the format is known."""

    @property
    def fields(self) -> frozenset[str]:
        """The fields that are read, the marks included."""

    def rows(self, line: Fields) -> Sequence[TraceRow]:
        """Return the requests of the file's next line; raises ValueError when it cannot be read."""


def read_json_lines(path: Path, block_tokens: int | None = None) -> TraceContents:
    """Return the requests of a file; raises InvalidRequest with the line that cannot be read.

    A request log is sorted by time, from 0. `block_tokens` is the size of the blocks of `hash_ids` if it is not the
    format's.
    """
    log = RequestLog()
    formats: tuple[LineFormat, ...] = (
        BailianLines(block_tokens),
        MultiTurnLines(),
        SingleTurnLines(),
        MooncakeLines(block_tokens),
        log,
    )
    rows: list[TraceRow] = []
    used: LineFormat | None = None
    for at, text in _lines(path):
        try:
            line = as_object(json.loads(text), "the line")
            used = _format(line, formats, used)
            rows += used.rows(line)
        except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise InvalidRequest(f"{path}, line {at}: {error}") from None
    if used is log:
        start = min((row.arrival for row in rows), default=0.0)
        rows = sorted((row.at(row.arrival - start) for row in rows), key=lambda row: row.arrival)
    left_out = tuple(f"{path}: {sentence}" for sentence in log.left_out())
    return TraceContents(rows, left_out)


def _format(line: Fields, formats: Sequence[LineFormat], used: LineFormat | None) -> LineFormat:
    """Return the only format of which the line has marks; without marks, that of the lines before.

    Raises ValueError when a line has fields of several formats, or another format than the lines before.
    """
    names = {name for name, value in line.items() if value is not None}
    if isinstance(line.get("text"), dict):
        names.remove("text")  # an option of the Responses API, which its answers repeat
    found = next((one for one in formats if one.marks & names), used or formats[-1])
    for other in formats:
        foreign = sorted((other.marks & names) - found.fields)
        if other is not found and foreign:
            own = sorted(found.marks & names)
            raise ValueError(f"{own[0]} is a field of {found.name}, but {foreign[0]} is one of {other.name}")
    if used is not None and found is not used:
        raise ValueError(f"this line is one of {found.name}, but the lines before are of {used.name}")
    return found


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    at = 0
    try:
        with open_bytes(path) as file:
            for at, line in enumerate(file, start=1):
                if line.strip():
                    yield at, line
    except UNREADABLE as error:
        raise InvalidRequest(f"{path} cannot be read after line {at}: {error}") from None
