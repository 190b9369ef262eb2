"""Calls as Mistral writes them: `[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`.

Later models write `[TOOL_CALLS]name[ARGS]{...}` for each call, perhaps with an id before the arguments.
"""

import re
from collections.abc import Collection

from fairlead.output.events import AnswerText, CallBegun
from fairlead.output.json_call import json_call, json_object
from fairlead.output.pattern import Pattern
from fairlead.output.source import Grammar, Source, expect, skip, skip_space, text_before

BEGIN = "[TOOL_CALLS]"
MARKS = (BEGIN, "[CALL_ID]", "[ARGS]")
# No two parts that match white space follow each other: a long row of it would be divided in all ways.
_NAMED = Pattern(r"\s*([\w.\-]+)\s*(?:\[CALL_ID\]\s*(?:\w+\s*)?)?(?:(\[ARGS\])\s*)?(?=\{)")
_LEAD = re.compile(r"[\s\[,]*")


def mistral(source: Source, offered: Collection[str] | None) -> Grammar[None]:
    """Read text and lists of calls. White space around a list belongs to it."""
    number = 0
    while marker := (yield from text_before(source, BEGIN)):
        first = number
        if (yield from _named_call(source, number, offered)):
            number += 1
            yield from skip_space(source)
            continue
        while (yield from json_call(source, number, _LEAD, offered)):
            number += 1
            yield from skip_space(source)
        if number == first:
            yield AnswerText(marker)
            continue
        yield from skip(source, "]")
        yield from skip_space(source)


def _named_call(source: Source, number: int, offered: Collection[str] | None) -> Grammar[bool]:
    """Read a call whose name stands before its arguments, and return True; if there is none, read nothing.

    Without the mark of arguments it is a call only of a tool that was offered.
    """
    head = yield from expect(source, _NAMED)
    if head is None:
        return False
    if not head[2] and offered is not None and head[1] not in offered:
        source.held = head[0] + source.held
        return False
    yield CallBegun(number, head[1])
    yield from json_object(source, number)
    return True
