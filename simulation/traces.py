"""Traces of real services: CSV, plain or gzip, one row per request; and request logs.

Where a trace names prefix blocks, calls share exactly those; where it does not, nothing is shared.
"""

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simulation.openai_logs import read_openai_log
from simulation.replay import LONGEST_OUTPUT, Replay, Row
from simulation.sources import SourceMissing

BLOCK_TOKENS = {"mooncake": 512, "claudecode": 64, "agent": 64}  # by how the file's name begins


def read_rows(path: Path) -> list[Row]:
    """A trace (.csv, .csv.gz) or a request log (.jsonl); raises SourceMissing, InvalidRequest."""
    if not path.is_file():
        raise SourceMissing(f"no trace {path}")
    return read_openai_log(path) if path.suffix == ".jsonl" else read_trace(path)


def read_trace(path: Path) -> list[Row]:
    """In order of the file."""
    block_tokens = next((size for start, size in BLOCK_TOKENS.items() if path.name.startswith(start)), 0)
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [_row(row, block_tokens) for row in csv.DictReader(file)]


def _row(row: dict[str, str], block_tokens: int) -> Row:
    return Row(
        arrival=float(row["arrival_s"]),
        client=row["client"],
        app=row["app"],
        input_tokens=max(int(row["input_tokens"]), 1),
        output_tokens=min(max(int(row["output_tokens"]), 1), LONGEST_OUTPUT),
        interaction=row["interaction"],
        think=float(row.get("think_s") or 0.0),
        blocks=tuple(_blocks(row["blocks"])) if block_tokens else (),
        block_tokens=block_tokens,
    )


def _blocks(text: str) -> Iterator[int]:
    """`a+n` stands for a, a+1, ... a+n; runs are joined by semicolons."""
    for run in filter(None, text.split(";")):
        first, _, more = run.partition("+")
        yield from range(int(first), int(first) + int(more or 0) + 1)


@dataclass(frozen=True, slots=True)
class Trace:
    """A description of a workload: the first `limit` rows of a file, arriving `speed` times as fast."""

    path: Path
    limit: int | None = None
    speed: float = 1.0

    def make(self) -> Replay:
        """See WorkloadSpec."""
        return Replay(self.rows())

    def rows(self) -> list[Row]:
        """The requests."""
        return [row.at(row.arrival / self.speed) for row in read_rows(self.path)[: self.limit]]
