"""Calls as Mistral writes them: `[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`."""

import re
from collections.abc import Collection

from fairlead.output.events import AnswerText
from fairlead.output.json_call import json_call
from fairlead.output.source import Grammar, Source, skip, skip_space, text_before

BEGIN = "[TOOL_CALLS]"
_LEAD = re.compile(r"[\s\[,]*")


def mistral(source: Source, offered: Collection[str] | None) -> Grammar[None]:
    """Read text and lists of calls. White space around a list belongs to it."""
    number = 0
    while marker := (yield from text_before(source, BEGIN)):
        first = number
        while (yield from json_call(source, number, _LEAD, offered)):
            number += 1
            yield from skip_space(source)
        if number == first:
            yield AnswerText(marker)
            continue
        yield from skip(source, "]")
        yield from skip_space(source)
