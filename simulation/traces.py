"""Traces of real services: gzip CSV, one row per request; the folder's own README describes the columns.

Where a trace names prefix blocks, calls share exactly those; where it does not, nothing is shared. Calls of an
interaction that follow one another are a closed loop: each comes `think_s` after the one before was answered.
"""

import csv
import gzip
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from simulation.call import Call
from simulation.prompts import Segments
from simulation.sources import SourceMissing
from simulation.workload import ClosedLoop

BLOCK_TOKENS = {"mooncake": 512, "claudecode": 64, "agent": 64}  # by how the file's name begins
LONGEST_OUTPUT = 4095


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request. `blocks` are ids of prefix blocks in prompt order; `interaction` is empty for a single call."""

    arrival: float
    client: str
    app: str
    input_tokens: int
    output_tokens: int
    interaction: str = ""
    think: float = 0.0
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0


def read_trace(path: Path) -> list[Row]:
    """In order of the file; raises SourceMissing when it is not there."""
    if not path.is_file():
        raise SourceMissing(f"no trace {path}")
    block_tokens = next((size for start, size in BLOCK_TOKENS.items() if path.name.startswith(start)), 0)
    with gzip.open(path, "rt") as file:
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


class Replay:
    """A workload of rows: interactions with more than one call in closed loop, the others at their times."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._segments = Segments()
        self._shared: dict[tuple[str, int], list[int]] = {}  # content of (scope, block)
        self._loop = ClosedLoop()
        self._number = 0
        chains: dict[str, list[Row]] = {}
        for position, row in enumerate(rows):
            chains.setdefault(row.interaction or f"#{position}", []).append(row)
        self._chains = sorted(chains.values(), key=lambda chain: chain[0].arrival)

    def first(self) -> Iterator[Call]:
        """See Workload."""
        for chain in self._chains:
            yield self._loop.follow(self._call(chain, 0, chain[0].arrival), partial(self._follow, chain, 0))

    def ended(self, call: Call) -> Iterable[Call]:
        """See Workload."""
        return self._loop.ended(call)

    def _follow(self, chain: Sequence[Row], position: int, ended: Call) -> list[Call]:
        if position + 1 == len(chain):
            return []
        row = chain[position + 1]
        call = self._call(chain, position + 1, ended.arrival + ended.latency + row.think)
        return [self._loop.follow(call, partial(self._follow, chain, position + 1))]

    def _call(self, chain: Sequence[Row], position: int, arrival: float) -> Call:
        row = chain[position]
        self._number += 1
        return Call(
            number=self._number,
            client=row.client or row.interaction or row.app,
            app=row.app or "default",
            prompt=self._prompt(row),
            output_tokens=row.output_tokens,
            arrival=arrival,
            interaction=row.interaction,
            stage=position,
            last=position + 1 == len(chain),
        )

    def _prompt(self, row: Row) -> list[int]:
        """Shared blocks as far as the prompt reaches, then tokens of its own."""
        scope = row.app if row.app != "claude-code" else row.interaction  # its block ids are local to an interaction
        prompt: list[int] = []
        for block in row.blocks[: row.input_tokens // max(row.block_tokens, 1)]:
            key = scope, block
            if key not in self._shared:
                self._shared[key] = self._segments.fresh(row.block_tokens)
            prompt += self._shared[key]
        return prompt + self._segments.fresh(row.input_tokens - len(prompt))


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
        return [replace(row, arrival=row.arrival / self.speed) for row in read_trace(self.path)[: self.limit]]
