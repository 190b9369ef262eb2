"""Published traces and logs in CSV, with the columns that their publishers gave them."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from simulation.iso_times import seconds_since_1970
from simulation.openai_logs import RequestLog
from simulation.tables import TableRow, read_table
from simulation.trace_rows import LONGEST, TraceContents, TraceRow

AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")  # of 2023 and 2024
BURSTGPT = ("Timestamp", "Model", "Request tokens", "Response tokens")
LITELLM = ("startTime", "prompt_tokens", "completion_tokens")


class TableFormat(NamedTuple):
    """A format: the columns by which it is known, and its reader."""

    columns: tuple[str, ...]
    read: Callable[[Path], TraceContents]


def _azure(path: Path) -> TraceContents:
    return TraceContents([_azure_row(line) for line in read_table(path, AZURE)])


def _azure_row(line: TableRow) -> TraceRow:
    return TraceRow(
        arrival=_iso(line, "TIMESTAMP"),
        client="",
        app="azure",
        input_tokens=_tokens(line, "ContextTokens"),
        output_tokens=_tokens(line, "GeneratedTokens"),
    )


def _burstgpt(path: Path) -> TraceContents:
    """Return the requests that have an answer; times are in seconds. A row waits for its session's row before."""
    rows: list[TraceRow] = []
    newest: dict[str, int] = {}
    failed = 0
    for line in read_table(path, BURSTGPT):
        if not line.number("Response tokens", LONGEST):
            failed += 1
            continue
        session = line.text("Session ID")
        rows.append(_burstgpt_row(line, session, (newest[session],) if session in newest else ()))
        if session:
            newest[session] = len(rows) - 1
    return TraceContents(rows, (f"{path}: {failed} requests that failed are left out",) if failed else ())


def _burstgpt_row(line: TableRow, session: str, after: tuple[int, ...]) -> TraceRow:
    return TraceRow(
        arrival=line.number("Timestamp"),
        client="",
        app=line.text("Model"),
        input_tokens=_tokens(line, "Request tokens"),
        output_tokens=_tokens(line, "Response tokens"),
        interaction=session,
        after=after,
    )


def _litellm(path: Path) -> TraceContents:
    """Return a spend log's requests in order of time, from 0."""
    log, rows = RequestLog(), list[TraceRow]()
    for line in read_table(path, LITELLM):
        counts = {name: line.count(name, LONGEST) for name in LITELLM[1:]}
        texts = {name: line.text(name) for name in ("end_user", "user", "api_key", "model", "call_type", "cache_hit")}
        _iso(line, "startTime")
        rows += log.rows({"startTime": line.text("startTime"), "status": line.text("status"), **texts, **counts})
    start = min((row.arrival for row in rows), default=0.0)
    rows = sorted((row.at(row.arrival - start) for row in rows), key=lambda row: row.arrival)
    return TraceContents(rows, tuple(f"{path}: {said}" for said in log.left_out()))


def _iso(line: TableRow, column: str) -> float:
    try:
        return seconds_since_1970(line.text(column))
    except ValueError:
        raise line.wrong(column, f"{line.text(column)!r} is no ISO 8601 time") from None


def _tokens(line: TableRow, column: str) -> int:
    return max(line.count(column, LONGEST), 1)


PUBLISHED = {
    "Azure": TableFormat(AZURE, _azure),
    "BurstGPT": TableFormat(BURSTGPT, _burstgpt),
    "LiteLLM": TableFormat(LITELLM, _litellm),
}
