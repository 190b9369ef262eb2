"""Reasoning before an answer: `<think>...</think>`, as Qwen 3, DeepSeek R1 and others write it."""

from collections.abc import Callable, Collection

from fairlead.output.events import Reasoning
from fairlead.output.pattern import Pattern
from fairlead.output.source import MOST_SPACE, Grammar, Source, expect, skip_space, text_before

BEGIN, END = "<think>", "</think>"
CALL = "<tool_call>"
MOST_HELD = 8_192  # characters that are held back after the head of a call in reasoning
_HEAD = Pattern(  # of a call in any of the formats with this mark
    r'\s*(?:\{\s*"name"\s*:\s*"([^"\\]+)"|<function=([^<>\s]+)>|([\w.\-]+)\s*(?:<arg_key>|</tool_call>))'
)


def thinking(
    source: Source, has_begun: bool, answer: Callable[[Source], Grammar[None]], called: Collection[str]
) -> Grammar[None]:
    """Read the reasoning, which the prompt may have begun already, and the model again, and then the answer.

    White space around the reasoning belongs to it. Reasoning that the output does not end is all that it has, but for
    a call of one of the tools `called`: models call them without an end of their reasoning.
    """
    if (yield from _begins(source)) or has_begun:
        yield from skip_space(source)
        markers = (END, CALL) if called else (END,)
        while (marker := (yield from text_before(source, *markers, kind=Reasoning))).endswith(CALL):
            if (yield from _is_head(source, called)) and (yield from _is_last(source)):
                source.held = CALL + source.held
                break
            yield Reasoning(marker)
        yield from skip_space(source)
    yield from answer(source)


def _is_head(source: Source, called: Collection[str]) -> Grammar[bool]:
    """Return whether a call of one of the tools `called` begins here; read nothing."""
    head = yield from expect(source, _HEAD)
    if head is None:
        return False
    source.held = head[0] + source.held
    return head[head.lastindex or 0] in called


def _is_last(source: Source) -> Grammar[bool]:
    """Return whether the reasoning does not end in what follows, as far as it is held back; read nothing."""
    while END not in source.held[:MOST_HELD]:
        if source.is_ended or len(source.held) >= MOST_HELD:
            return True
        yield None
    return False


def _begins(source: Source) -> Grammar[bool]:
    """Skip the marker with which the output begins, if it does."""
    while True:
        begun = source.held.lstrip()
        space = len(source.held) - len(begun)
        if begun.startswith(BEGIN) and space <= MOST_SPACE:
            source.take(space + len(BEGIN))
            return True
        if source.is_ended or space > MOST_SPACE or not BEGIN.startswith(begun):
            return False
        yield None
