"""Lines of two published traces: Mooncake's, whose form AIPerf extends, and Bailian's.

Mooncake: `timestamp` in milliseconds, `input_length`, `output_length`, and `hash_ids` of blocks of 512 tokens. AIPerf
adds `session_id`, `delay` in milliseconds, and `text_input` or `messages` in place of `input_length`.
Bailian: `timestamp` in seconds, blocks of 16 tokens, and `chat_id` with the `parent_chat_id` that it continues.
"""

from simulation.json_fields import Fields, as_list, number, required, whole
from simulation.openai_texts import prompt_text
from simulation.sessions import RecordedTurn, Sessions, turn_time
from simulation.text_blocks import TEXT_BLOCK_TOKENS, text_blocks, text_tokens
from simulation.trace_rows import LONGEST, PrefixBlocks, TraceRow

LARGEST_ID = (1 << 64) - 1
NO_PARENT = -1


class MooncakeLines:
    """A reader of the lines of Mooncake's trace. See LineFormat."""

    name = "Mooncake's trace"
    marks = frozenset({"input_length", "output_length", "text_input", "hash_ids"})
    fields = marks | {"timestamp", "delay", "session_id", "messages"}

    def __init__(self, block_tokens: int | None) -> None:
        self._block_tokens = block_tokens or 512
        self._sessions = Sessions("mooncake")

    def rows(self, line: Fields) -> list[TraceRow]:
        return [self._sessions.add(self._turn(line))]

    def _turn(self, line: Fields) -> RecordedTurn:
        text = _text(line)
        size = self._block_tokens if text is None else TEXT_BLOCK_TOKENS
        tokens = _length(line, "input_length") if text is None else text_tokens(text)
        return RecordedTurn(
            session=str(line.get("session_id") or ""),
            time=turn_time(line),
            input_tokens=tokens,
            output_tokens=_length(line, "output_length"),
            ids=_ids(line, tokens, size) if text is None else tuple(text_blocks(text)),
            block_tokens=size,
            continues=line.get("messages") is None or line.get("message_mode") == "delta",
        )


class BailianLines:
    """A reader of the lines of Bailian's trace. A chat waits for the answer to its parent. See LineFormat."""

    name = "Bailian's trace"
    marks = frozenset({"chat_id", "parent_chat_id"})
    fields = marks | {"timestamp", "input_length", "output_length", "hash_ids"}

    def __init__(self, block_tokens: int | None) -> None:
        self._block_tokens = block_tokens or 16
        self._rows = 0
        self._chats: dict[int, tuple[int, str]] = {}  # position and interaction by chat

    def rows(self, line: Fields) -> list[TraceRow]:
        chat = whole(required(line, "chat_id"), "chat_id", 0, LARGEST_ID)
        parent = whole(line.get("parent_chat_id", NO_PARENT), "parent_chat_id", NO_PARENT, LARGEST_ID)
        before = self._chats.get(parent)
        root = before[1] if before else str(chat if parent == NO_PARENT else parent)
        tokens = _length(line, "input_length")
        row = TraceRow(
            arrival=number(required(line, "timestamp"), "timestamp"),
            client="",
            app="bailian",
            input_tokens=max(tokens, 1),
            output_tokens=max(_length(line, "output_length"), 1),
            interaction=root,
            after=(before[0],) if before else (),
            blocks=(PrefixBlocks("bailian", _ids(line, tokens, self._block_tokens)),),
            block_tokens=self._block_tokens,
        )
        self._chats[chat] = self._rows, root
        self._rows += 1
        return [row]


def _text(line: Fields) -> str | None:
    """Return the prompt's text, or None where the line has its length."""
    given = [name for name in ("input_length", "text_input", "messages") if line.get(name) is not None]
    if len(given) != 1:
        raise ValueError(f"{' and '.join(given)} exclude each other" if given else "input_length is missing")
    if given == ["input_length"]:
        return None
    return prompt_text({"prompt": line.get("text_input"), "messages": line.get("messages")})


def _length(line: Fields, name: str) -> int:
    return whole(required(line, name), name, 0, LONGEST)


def _ids(line: Fields, tokens: int, size: int) -> tuple[int, ...]:
    """Return the ids of the prompt's blocks, of which the last may be incomplete; none where the line names none."""
    ids = as_list(line.get("hash_ids") or [], "hash_ids")
    if ids and len(ids) not in (tokens // size, -(-tokens // size)):
        raise ValueError(f"hash_ids: {len(ids)} blocks of {size} tokens are no prompt of {tokens} tokens")
    return tuple(whole(one, "hash_ids", 0, LARGEST_ID) for one in ids)
