"""Traces of real services: CSV, plain or gzip, one row per request; and request logs.

Where a trace names prefix blocks, calls share exactly those; where it does not, nothing is shared.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import FairleadError, InvalidRequest
from simulation.claude_code import APP, SharedPrefixes, sessions_beside
from simulation.openai_logs import read_openai_log
from simulation.request_dependencies import RequestDependencies
from simulation.servegen import is_servegen, read_servegen
from simulation.tables import TableRow, read_table
from simulation.trace_replay import TraceReplay
from simulation.trace_rows import LONGEST, PrefixBlocks, TraceContents, TraceRow

BLOCK_TOKENS = {"mooncake_": 512, "claudecode_": 64, "agent_": 64}  # of published traces, by how their names begin
REQUIRED = ("arrival_s", "input_tokens", "output_tokens")
DAY = 86_400.0
LONGEST_DAYS = 31  # workers report their load four times a second: much longer ones do not end


def read(path: Path, limit: int | None = None, block_tokens: int | None = None) -> TraceContents:
    """The first `limit` requests of a trace (.csv, .csv.gz), a request log (.jsonl, .jsonl.gz) or ServeGen's rates.

    `block_tokens` is the size of a trace's blocks, which is known of published ones. Raises SourceMissing,
    InvalidRequest.
    """
    if not path.is_file():
        raise SourceMissing(f"no trace {path}")
    if is_servegen(path):
        rows, left_out = read_servegen(path, limit)
    elif path.name.endswith((".jsonl", ".jsonl.gz")):
        rows, left_out = read_openai_log(path)
    else:
        rows, left_out = read_trace(path, block_tokens)
    if not rows:
        raise InvalidRequest(f"{path} has no requests")
    return TraceContents(rows[:limit], left_out)


def read_trace(path: Path, block_tokens: int | None = None) -> TraceContents:
    """In order of the file; raises InvalidRequest, naming line, column and value, where it cannot be read."""
    known = (size for start, size in BLOCK_TOKENS.items() if path.name.startswith(start))
    size = block_tokens or next(known, 0)
    sessions, dependencies = sessions_beside(path), RequestDependencies()
    shared = SharedPrefixes(sessions, size)
    rows = [_row(line, size, dependencies, shared) for line in read_table(path, REQUIRED)]
    if sessions is None and any(row.app == APP and row.blocks for row in rows):
        return TraceContents(
            rows, (f"{path}: no table of sessions beside it: what these share with each other is unknown",)
        )
    return TraceContents(rows)


def _row(line: TableRow, block_tokens: int, dependencies: RequestDependencies, shared: SharedPrefixes) -> TraceRow:
    app, interaction = line.text("app"), line.text("interaction")
    runs = tuple(_runs(line))
    if runs and not block_tokens:
        raise line.wrong("blocks", "nobody knows how many tokens a block of this trace has: give --trace-block-tokens")
    return TraceRow(
        arrival=line.number("arrival_s"),
        client=line.text("client"),
        app=app,
        input_tokens=max(int(line.number("input_tokens", LONGEST)), 1),
        output_tokens=max(int(line.number("output_tokens", LONGEST)), 1),
        interaction=interaction,
        think=line.number("think_s") if line.text("think_s") else None,
        after=dependencies.add(line),
        blocks=tuple(shared.blocks(interaction, runs)) if app == APP else tuple(PrefixBlocks(app, run) for run in runs),
        block_tokens=block_tokens,
    )


def _runs(line: TableRow) -> Iterator[range]:
    """`a+n` stands for the `n` ids from `a` on, `a` for one; semicolons join them."""
    for run in filter(None, line.text("blocks").split(";")):
        first, plus, length = run.partition("+")
        if not (first.isdecimal() and (length.isdecimal() if plus else True)):
            raise line.wrong("blocks", f"{run!r} is neither an id nor id+length")
        yield range(int(first), int(first) + int(length or 1))


class SourceMissing(FairleadError):
    """A folder or file of published data was not given, or does not hold what is needed."""


@dataclass(frozen=True, slots=True)
class TraceWorkload:
    """A description of a workload: the first `limit` rows of a file, arriving `speed` times as fast from 0 on.

    With `starts_per_minute` interactions begin at that rate instead, a Poisson process, and keep their inner times.
    `block_tokens`: see `read`.
    """

    path: Path
    limit: int | None = None
    speed: float = 1.0
    starts_per_minute: float | None = None
    block_tokens: int | None = None

    def make(self) -> TraceReplay:
        """See WorkloadSpec."""
        return TraceReplay(self.rows())

    def rows(self) -> list[TraceRow]:
        """The requests alone; raises like `read`."""
        return self.read().rows

    def read(self) -> TraceContents:
        """The requests and what was left out. Raises SourceMissing; InvalidRequest, also for a file without times of
        its own when no rate is given, and for one that spans more than a month."""
        rows, left_out = read(self.path, self.limit, self.block_tokens)
        if self.starts_per_minute is not None:
            rows = list(_started(rows, self.starts_per_minute))
        elif _relative(rows):
            raise InvalidRequest(
                f"{self.path}: its times count from the start of each interaction: give --starts-per-minute"
            )
        start = min(row.arrival for row in rows)
        rows = [row.at((row.arrival - start) / self.speed) for row in rows]
        days = max(row.arrival for row in rows) / DAY
        if days > LONGEST_DAYS:
            raise InvalidRequest(
                f"{self.path}: the requests span {days:,.0f} days, at most {LONGEST_DAYS} are simulated: are all times "
                "in seconds? else give a limit or a speed"
            )
        return TraceContents(rows, left_out)


def _relative(rows: Sequence[TraceRow]) -> bool:
    """Whether several interactions all begin at 0, and not everything does."""
    starts: dict[str, float] = {}
    for row in rows:
        if row.interaction:
            starts.setdefault(row.interaction, row.arrival)
    return len(starts) > 1 and not any(starts.values()) and any(row.arrival for row in rows)


def _started(rows: Iterable[TraceRow], per_minute: float) -> Iterator[TraceRow]:
    rng, time = random.Random(1), 0.0
    shifts: dict[str, float] = {}
    for position, row in enumerate(rows):
        key = row.interaction or f"#{position}"
        if key not in shifts:
            time += rng.expovariate(per_minute / 60)
            shifts[key] = time - row.arrival
        yield row.at(row.arrival + shifts[key])
