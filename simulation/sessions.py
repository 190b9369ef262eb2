"""Conversations in traces whose lines hold one turn each, with times in milliseconds."""

from dataclasses import dataclass
from typing import NamedTuple

from simulation.json_fields import Fields, number
from simulation.trace_rows import LONGEST, PrefixBlocks, TraceRow


class TurnTime(NamedTuple):
    """The times of a turn in milliseconds: its arrival, or its distance from the answer before; None: not recorded."""

    timestamp: float | None
    delay: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """One recorded turn; `session` is empty for a single call.

    A turn that `continues` has only its own tokens in `input_tokens`: its prompt begins with the prompts and the
    answers of the session's turns before.
    """

    session: str
    time: TurnTime
    input_tokens: int
    output_tokens: int
    ids: tuple[int, ...] = ()
    block_tokens: int
    continues: bool


class Sessions:
    """The rows of a trace's turns, which are added in file order. A turn waits for the answer to the turn before."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._rows = 0
        self._newest: dict[str, tuple[int, TraceRow]] = {}  # position and row by session
        self._timed: bool | None = None  # whether sessions begin at recorded times

    def add(self, turn: RecordedTurn) -> TraceRow:
        """Return the next row of the trace; raises ValueError when times or lengths contradict each other."""
        before = self._newest.get(turn.session) if turn.session else None
        arrival, think = self._begin(turn) if before is None else _wait(turn, before[1].arrival)
        past = before[1] if before and turn.continues else None
        input_tokens = turn.input_tokens + (past.input_tokens + past.output_tokens if past else 0)
        if input_tokens > LONGEST:
            raise ValueError(f"the session's prompt has {input_tokens} tokens, above {LONGEST}")
        row = TraceRow(
            arrival=arrival,
            client="",
            app=self._app,
            input_tokens=max(input_tokens, 1),
            output_tokens=max(turn.output_tokens, 1),
            interaction=turn.session,
            think=think,
            after=(before[0],) if before else (),
            blocks=self._blocks(turn, past, input_tokens),
            block_tokens=past.block_tokens if past else turn.block_tokens,
            timed=self._timed is True,
        )
        if turn.session:
            self._newest[turn.session] = self._rows, row
        self._rows += 1
        return row

    def _begin(self, turn: RecordedTurn) -> tuple[float, None]:
        timed = turn.time.timestamp is not None
        if self._timed is not None and timed != self._timed:
            raise ValueError(f"timestamp: this line has {'one' if timed else 'none'}, contrary to the lines before")
        self._timed = timed
        return (turn.time.timestamp or 0.0) / 1000, None

    def _blocks(self, turn: RecordedTurn, past: TraceRow | None, input_tokens: int) -> tuple[PrefixBlocks, ...]:
        """Return the known prefix, and after it, in a conversation, blocks that only its own later turns repeat."""
        own = PrefixBlocks(self._app, turn.ids[: input_tokens // turn.block_tokens])
        known = past.blocks[0] if past else own
        if not (turn.session and turn.continues):
            return (known,)
        size = past.block_tokens if past else turn.block_tokens
        return known, PrefixBlocks(f"session {turn.session}", range(len(known.ids), input_tokens // size))


def turn_time(line: Fields) -> TurnTime:
    """Return the times of a line; raises ValueError when they are no numbers from 0 on, or both are given."""
    timestamp, delay = (None if line.get(name) is None else number(line[name], name) for name in TurnTime._fields)
    if timestamp is not None and delay is not None:
        raise ValueError("timestamp and delay exclude each other")
    return TurnTime(timestamp, delay)


def _wait(turn: RecordedTurn, before: float) -> tuple[float, float | None]:
    """Return the turn's arrival in seconds, and its thinking time if that was recorded."""
    if turn.time.timestamp is not None:
        return turn.time.timestamp / 1000, None
    if turn.time.delay is None:
        return before, 0.0
    return before + turn.time.delay / 1000, turn.time.delay / 1000
