"""Lines of AIPerf's input files: a call with `text` or `texts`, or a conversation with `turns` of such calls.

Times are in milliseconds. `output_length` is required, because answers are not in the file. For AIPerf's form of
Mooncake's trace see `simulation.mooncake`.
"""

from itertools import count

from simulation.json_fields import Fields, as_list, parts, required, shown, whole
from simulation.sessions import RecordedTurn, Sessions, turn_time
from simulation.text_blocks import TEXT_BLOCK_TOKENS, text_blocks, text_tokens
from simulation.trace_rows import LONGEST, TraceRow

MEDIA = ("image", "images", "audio", "audios", "video", "videos")


class SingleTurnLines:
    """A reader of lines that hold single calls. Calls of one session follow each other; each has a whole prompt."""

    name = "AIPerf's single turns"
    marks = frozenset({"text", "texts"})
    fields = marks | {"timestamp", "delay", "session_id", "output_length"}

    def __init__(self) -> None:
        self._sessions = Sessions("aiperf")

    def rows(self, line: Fields) -> list[TraceRow]:
        return [self._sessions.add(_turn(line, str(line.get("session_id") or ""), continues=False))]


class MultiTurnLines:
    """A reader of conversations, a line each. The prompt of a turn begins with all turns before and their answers."""

    name = "AIPerf's conversations"
    marks = frozenset({"turns"})
    fields = marks | {"session_id"}

    def __init__(self) -> None:
        self._sessions = Sessions("aiperf")
        self._numbers = count(1)

    def rows(self, line: Fields) -> list[TraceRow]:
        session = f"{next(self._numbers)} {line.get('session_id') or ''}".strip()
        return [row for at, turn in enumerate(parts(line, "turns")) for row in self._row(turn, session, at)]

    def _row(self, turn: Fields, session: str, at: int) -> list[TraceRow]:
        try:
            return [self._sessions.add(_turn(turn, session, continues=True))]
        except ValueError as error:
            raise ValueError(f"turns[{at}]: {error}") from None


def _turn(line: Fields, session: str, *, continues: bool) -> RecordedTurn:
    text = _text(line)
    return RecordedTurn(
        session=session,
        time=turn_time(line),
        input_tokens=text_tokens(text),
        output_tokens=whole(required(line, "output_length"), "output_length", 1, LONGEST),
        ids=tuple(text_blocks(text)),
        block_tokens=TEXT_BLOCK_TOKENS,
        continues=continues,
    )


def _text(line: Fields) -> str:
    media = [name for name in MEDIA if line.get(name) is not None]
    if media:
        raise ValueError(f"{media[0]}: the number of its tokens is unknown")
    if line.get("text") is not None and line.get("texts") is not None:
        raise ValueError("text and texts exclude each other")
    texts = [line["text"]] if line.get("text") is not None else as_list(required(line, "texts"), "texts")
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"texts: {shown(text)} is no text")
    return "".join(texts)
