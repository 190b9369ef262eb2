"""Traces of real services (CSV, plain or gzip, one row per request) and request logs.

Calls share the prefix blocks that a trace names. Where a trace names none, calls share nothing.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import FairleadError, InvalidRequest
from simulation.claude_code import APP, SharedPrefixes, sessions_beside
from simulation.json_lines import read_json_lines
from simulation.request_dependencies import RequestDependencies
from simulation.table_formats import PUBLISHED
from simulation.tables import TableRow, columns_of, read_table
from simulation.trace_replay import TraceReplay
from simulation.trace_rows import LONGEST, PrefixBlocks, TraceContents, TraceRow

BLOCK_TOKENS = {"mooncake_": 512, "claudecode_": 64, "agent_": 64}  # of published traces, by file name prefix
REQUIRED = ("arrival_s", "input_tokens", "output_tokens")
JSON_LINES = (".jsonl", ".ndjson", ".json")
DAY = 86_400.0
LONGEST_DAYS = 31  # four load reports a second make longer simulations too slow


def read(path: Path, limit: int | None = None, block_tokens: int | None = None) -> TraceContents:
    """Return the first `limit` requests of a table (.csv, .csv.gz) or of JSON lines (.jsonl, .ndjson, .json, and these
    with .gz).

    `block_tokens` is the block size of the trace in tokens; it is known for published traces. Raises SourceMissing when
    there is no such file, and InvalidRequest when it cannot be read or has no requests.
    """
    if not path.is_file():
        raise SourceMissing(f"there is no trace {path}")
    if path.name.removesuffix(".gz").endswith(JSON_LINES):
        contents = read_json_lines(path, block_tokens)
    else:
        contents = _read_table(path, block_tokens)
    if not contents.rows:
        raise InvalidRequest("; ".join((f"{path} has no requests", *contents.left_out)))
    return contents._replace(rows=contents.rows[:limit])


def _read_table(path: Path, block_tokens: int | None) -> TraceContents:
    """Return the requests of a table; its columns tell whether it is a trace or a published format."""
    columns = columns_of(path)
    found = [name for name, one in PUBLISHED.items() if set(one.columns) <= set(columns)]
    own = set(REQUIRED) <= set(columns)
    if len(found) + own > 1:
        raise InvalidRequest(f"{path} has the columns of several formats: {', '.join([*found, *['a trace'] * own])}")
    if not found and not own:
        missing = ", ".join(column for column in REQUIRED if column not in columns)
        others = "; ".join(f"{name}: {', '.join(one.columns)}" for name, one in PUBLISHED.items())
        raise InvalidRequest(f"{path} has no column {missing}, nor the columns of a published format ({others})")
    return PUBLISHED[found[0]].read(path) if found else read_trace(path, block_tokens)


def read_trace(path: Path, block_tokens: int | None = None) -> TraceContents:
    """Return the requests in file order; raises InvalidRequest, with line, column and value, when the file cannot be
    read."""
    known = (size for start, size in BLOCK_TOKENS.items() if path.name.startswith(start))
    size = block_tokens or next(known, 0)
    sessions, dependencies = sessions_beside(path), RequestDependencies()
    shared = SharedPrefixes(sessions, size)
    rows = [_row(line, size, dependencies, shared) for line in read_table(path, REQUIRED)]
    if sessions is None and any(row.app == APP and row.blocks for row in rows):
        return TraceContents(rows, (f"{path}: no table of sessions is beside it: sharing between sessions is unknown",))
    return TraceContents(rows)


def _row(line: TableRow, block_tokens: int, dependencies: RequestDependencies, shared: SharedPrefixes) -> TraceRow:
    app, interaction = line.text("app"), line.text("interaction")
    runs = tuple(_runs(line))
    if runs and not block_tokens:
        raise line.wrong("blocks", "the block size of this trace is unknown: give --trace-block-tokens")
    return TraceRow(
        arrival=line.number("arrival_s"),
        client=line.text("client"),
        app=app,
        input_tokens=max(line.count("input_tokens", LONGEST), 1),
        output_tokens=max(line.count("output_tokens", LONGEST), 1),
        interaction=interaction,
        think=line.number("think_s") if line.text("think_s") else None,
        after=dependencies.add(line),
        blocks=tuple(shared.blocks(interaction, runs)) if app == APP else tuple(PrefixBlocks(app, run) for run in runs),
        block_tokens=block_tokens,
    )


def _runs(line: TableRow) -> Iterator[range]:
    """Yield the ids: `a+n` stands for the `n` ids from `a` on, `a` for one id; semicolons separate runs."""
    for run in filter(None, line.text("blocks").split(";")):
        first, plus, length = run.partition("+")
        if not (first.isdecimal() and (length.isdecimal() if plus else True)):
            raise line.wrong("blocks", f"{run!r} is neither an id nor id+length")
        yield range(int(first), int(first) + int(length or 1))


class SourceMissing(FairleadError):
    """The error for published data that was not given, or for a folder or file that lacks the needed data."""


@dataclass(frozen=True, slots=True)
class TraceWorkload:
    """A description of a workload: the first `limit` rows of a file, replayed from time 0 at `speed` times the recorded
    rate.

    With `starts_per_minute`, interactions begin at that rate instead, as a Poisson process, and keep their inner times.
    For `block_tokens` see `read`. See WorkloadSpec.
    """

    path: Path
    limit: int | None = None
    speed: float = 1.0
    starts_per_minute: float | None = None
    block_tokens: int | None = None

    def make(self) -> TraceReplay:
        return TraceReplay(self.rows())

    def rows(self) -> list[TraceRow]:
        """Return the requests alone; raises the errors of `read`."""
        return self.read().rows

    def read(self) -> TraceContents:
        """Return the requests, and what was left out.

        Raises SourceMissing and InvalidRequest, the latter also for a trace without absolute times when no rate is
        given and for a trace that spans more than LONGEST_DAYS.
        """
        rows, left_out = read(self.path, self.limit, self.block_tokens)
        if self.starts_per_minute is not None:
            rows = list(_started(rows, self.starts_per_minute))
        elif _relative(rows):
            raise InvalidRequest(
                f"{self.path}: times are relative to the start of each interaction: give --starts-per-minute"
            )
        start = min(row.arrival for row in rows)
        rows = [row.at((row.arrival - start) / self.speed) for row in rows]
        days = max(row.arrival for row in rows) / DAY
        if days > LONGEST_DAYS:
            raise InvalidRequest(
                f"{self.path}: the requests span {days:,.0f} days, but at most {LONGEST_DAYS} are simulated: check "
                "that all times are in seconds, or give a limit or a speed"
            )
        return TraceContents(rows, left_out)


def _relative(rows: Sequence[TraceRow]) -> bool:
    """Return whether rows are not timed, or several interactions all begin at 0 while some rows have later times."""
    if not all(row.timed for row in rows):
        return True
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
