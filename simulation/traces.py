"""Traces of real services: CSV, plain or gzip, one row per request; and request logs.

Where a trace names prefix blocks, calls share exactly those; where it does not, nothing is shared.
"""

import csv
import gzip
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import InvalidRequest
from simulation.openai_logs import read_openai_log
from simulation.replay import LONGEST_OUTPUT, Replay, Row
from simulation.servegen import is_servegen, read_servegen
from simulation.sources import SourceMissing

BLOCK_TOKENS = {"mooncake": 512, "claudecode": 64, "agent": 64}  # by how the file's name begins
RELATIVE = "claudecode"  # such a file's times count from the start of each interaction
REQUIRED = ("arrival_s", "input_tokens", "output_tokens")


def read_rows(path: Path, limit: int | None = None) -> list[Row]:
    """The first `limit` of a trace (.csv, .csv.gz), a request log (.jsonl) or ServeGen's rates; raises SourceMissing,
    InvalidRequest."""
    if not path.is_file():
        raise SourceMissing(f"no trace {path}")
    if is_servegen(path):
        rows = read_servegen(path, limit)
    else:
        rows = (read_openai_log(path) if path.suffix == ".jsonl" else read_trace(path))[:limit]
    if not rows:
        raise InvalidRequest(f"{path} has no requests")
    return rows


def read_trace(path: Path) -> list[Row]:
    """In order of the file; raises InvalidRequest, naming line, field and value, where it cannot be read."""
    block_tokens = next((size for start, size in BLOCK_TOKENS.items() if path.name.startswith(start)), 0)
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            reader = csv.DictReader(file)
            missing = [field for field in REQUIRED if field not in (reader.fieldnames or ())]
            if missing:
                raise InvalidRequest(f"{path} is no trace of requests: it has no column {', '.join(missing)}")
            return [_checked(path, number, row, block_tokens) for number, row in enumerate(reader, start=2)]
    except (gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} is neither CSV nor gzip of CSV: {error}") from None


def _checked(path: Path, number: int, row: dict[str, str], block_tokens: int) -> Row:
    try:
        return _row(row, block_tokens)
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}, line {number}: {error}") from None


def _row(row: dict[str, str], block_tokens: int) -> Row:
    return Row(
        arrival=_number(row, "arrival_s"),
        client=row.get("client") or "",
        app=row.get("app") or "",
        input_tokens=max(int(_number(row, "input_tokens")), 1),
        output_tokens=min(max(int(_number(row, "output_tokens")), 1), LONGEST_OUTPUT),
        interaction=row.get("interaction") or "",
        think=_number(row, "think_s") if row.get("think_s") else 0.0,
        blocks=tuple(_blocks(row.get("blocks") or "")) if block_tokens else (),
        block_tokens=block_tokens,
    )


def _number(row: dict[str, str], field: str) -> float:
    text = row[field]
    try:
        value = float(text)
    except (TypeError, ValueError):
        raise InvalidRequest(f"{text!r} is not a number", field) from None
    if not 0 <= value < math.inf:
        raise InvalidRequest(f"{text} is below 0 or not finite", field)
    return value


def _blocks(text: str) -> Iterator[int]:
    """`a+n` stands for a, a+1, ... a+n; runs are joined by semicolons."""
    for run in filter(None, text.split(";")):
        first, _, more = run.partition("+")
        if not (first.isdigit() and (more or "0").isdigit()):
            raise InvalidRequest(f"{run!r} is neither an id nor id+more", "blocks")
        yield from range(int(first), int(first) + int(more or 0) + 1)


@dataclass(frozen=True, slots=True)
class Trace:
    """A description of a workload: the first `limit` rows of a file, arriving `speed` times as fast.

    With `starts_per_minute` interactions begin at that rate instead, a Poisson process, and keep their inner times.
    """

    path: Path
    limit: int | None = None
    speed: float = 1.0
    starts_per_minute: float | None = None

    def make(self) -> Replay:
        """See WorkloadSpec."""
        return Replay(self.rows())

    def rows(self) -> list[Row]:
        """The requests; raises InvalidRequest for a file without times of its own when no rate is given."""
        rows = read_rows(self.path, self.limit)
        if self.starts_per_minute is not None:
            rows = list(_started(rows, self.starts_per_minute))
        elif self.path.name.startswith(RELATIVE):
            raise InvalidRequest(
                f"{self.path}: its times count from the start of each interaction: give --starts-per-minute"
            )
        return [row.at(row.arrival / self.speed) for row in rows]


def _started(rows: Iterable[Row], per_minute: float) -> Iterator[Row]:
    rng, time = random.Random(1), 0.0
    shifts: dict[str, float] = {}
    for position, row in enumerate(rows):
        key = row.interaction or f"#{position}"
        if key not in shifts:
            time += rng.expovariate(per_minute / 60)
            shifts[key] = time - row.arrival
        yield row.at(row.arrival + shifts[key])
