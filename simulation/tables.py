"""Tables in CSV, plain or gzip. An error message is one line with the file, the line, the column and the value."""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import InvalidRequest

UNREADABLE = (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error)


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table, with its file and its line number `at`."""

    path: Path
    at: int
    fields: Mapping[str, str | None]

    def text(self, column: str) -> str:
        """Return the field's text, or "" when the table has no such column."""
        return self.fields.get(column) or ""

    def number(self, column: str, most: float = math.inf) -> float:
        """Return a finite number from 0 to `most`; raises InvalidRequest for any other value."""
        text = self.fields.get(column)
        try:
            value = float("" if text is None or "_" in text else text)
        except ValueError:
            raise self.wrong(column, f"{text!r} is not a number") from None
        if not 0 <= value < math.inf:
            raise self.wrong(column, f"{text} is below 0 or not finite")
        if value > most:
            raise self.wrong(column, f"{text} is above {most:.12g}, the most that can be simulated")
        return value

    def count(self, column: str, most: float = math.inf) -> int:
        """Return a whole number from 0 to `most`; raises InvalidRequest for any other value."""
        value = self.number(column, most)
        if not value.is_integer():
            raise self.wrong(column, f"{self.text(column)} is not a whole number")
        return int(value)

    def wrong(self, column: str, said: str) -> InvalidRequest:
        """Return an error that names the line and the column, and says with `said` what is wrong there."""
        return InvalidRequest(f"{self.path}, line {self.at}: {column}: {said}")


def open_bytes(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """Open the file for reading bytes, and unpack it if its name ends in .gz."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def columns_of(path: Path) -> tuple[str, ...]:
    """Return the names in the table's first line; raises InvalidRequest when it cannot be read."""
    try:
        with io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline="") as file:
            return tuple(next(csv.reader(file), ()))
    except UNREADABLE as error:
        raise InvalidRequest(f"{path} is neither CSV nor gzip of CSV, after line 0: {error}") from None


def read_table(path: Path, columns: Collection[str]) -> Iterator[TableRow]:
    """Yield the rows.

    Raises InvalidRequest when the file cannot be read, lacks one of `columns` or has it twice, and for a row with more
    fields than the table has columns, of which any may be the one too many.
    """
    at = 0
    try:
        with io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            at = int(bool(reader.fieldnames))
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise InvalidRequest(f"{path} has no column {', '.join(missing)}")
            twice = [column for column in columns if list(reader.fieldnames or ()).count(column) > 1]
            if twice:
                raise InvalidRequest(f"{path} has more than one column {', '.join(twice)}")
            for fields in reader:
                at = reader.line_num
                if None in fields:
                    has = f"{len(fields) - 1} columns, got {len(fields) - 1 + len(fields[None])} fields"
                    raise InvalidRequest(f"{path}, line {at}: the table has {has}")
                yield TableRow(path, at, fields)
    except UNREADABLE as error:
        raise InvalidRequest(f"{path} is neither CSV nor gzip of CSV, after line {at}: {error}") from None
