"""Reasoning before an answer: `<think>...</think>`, as Qwen 3, DeepSeek R1 and others write it."""

from collections.abc import Callable

from fairlead.output.events import Reasoning
from fairlead.output.source import MOST_SPACE, Grammar, Source, skip_space, text_before

BEGIN, END = "<think>", "</think>"


def thinking(source: Source, has_begun: bool, answer: Callable[[Source], Grammar[None]]) -> Grammar[None]:
    """Read the reasoning, which the prompt may have begun already, and then the answer.

    White space around the reasoning belongs to it. Reasoning that the output does not end is all that it has.
    """
    if has_begun or (yield from _begins(source)):
        yield from skip_space(source)
        yield from text_before(source, END, kind=Reasoning)
        yield from skip_space(source)
    yield from answer(source)


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
