"""Prefix sharing in Claude Code traces.

Block ids are unique to an interaction, although its tools and its system prompt may also occur in other interactions. A
table of sessions beside the requests states the lengths of these two. Interactions for which both lengths are equal are
assumed to share them. The shared blocks are the consecutive ids at the start of an interaction's first prompt.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from simulation.tables import TableRow, read_table
from simulation.trace_rows import LONGEST, PrefixBlocks

APP = "claude-code"
REQUESTS, SESSIONS = "_requests", "_sessions"
COLUMNS = ("interaction", "tool_tokens", "system_tokens")


class _Prefix(NamedTuple):
    scope: str
    ids: range


def sessions_beside(path: Path) -> Path | None:
    """Return the path of the table of sessions for the requests in `path`, or None if there is no such file."""
    beside = path.with_name(path.name.replace(REQUESTS, SESSIONS))
    return beside if beside != path and beside.is_file() else None


class SharedPrefixes:
    """The prefixes that interactions share: none without a table of sessions. Rows are read in file order."""

    def __init__(self, sessions: Path | None, block_tokens: int) -> None:
        self._tokens = {} if sessions is None else dict(_session(line) for line in read_table(sessions, COLUMNS))
        self._block_tokens = block_tokens
        self._prefixes: dict[str, _Prefix] = {}  # by interaction

    def blocks(self, interaction: str, runs: Iterable[range]) -> Iterator[PrefixBlocks]:
        """Yield the runs of ids of one prompt, split by the scope in which the ids are unique."""
        for run in runs:
            scope, ids = self._prefixes.setdefault(interaction, self._prefix(interaction, run))
            start, stop = max(run.start, ids.start), min(run.stop, ids.stop)
            if start >= stop:
                yield PrefixBlocks(interaction, run)
                continue
            parts = (
                PrefixBlocks(interaction, range(run.start, start)),
                PrefixBlocks(scope, range(start - ids.start, stop - ids.start)),
                PrefixBlocks(interaction, range(stop, run.stop)),
            )
            yield from filter(_has_ids, parts)

    def _prefix(self, interaction: str, first: range) -> _Prefix:
        tools, system = self._tokens.get(interaction, (0, 0))
        return _Prefix(f"tools {tools}, system {system}", first[: (tools + system) // self._block_tokens])


def _has_ids(blocks: PrefixBlocks) -> bool:
    return bool(blocks.ids)


def _session(line: TableRow) -> tuple[str, tuple[int, int]]:
    tools, system = (int(line.number(column, LONGEST)) for column in COLUMNS[1:])
    return line.text("interaction"), (tools, system)
