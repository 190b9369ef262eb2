"""Calls as Hermes and Qwen write them: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, each by itself."""

import re
from collections.abc import Collection

from fairlead.output.events import AnswerText
from fairlead.output.json_call import json_call
from fairlead.output.source import Grammar, Source, skip, skip_space, text_before

BEGIN, END = "<tool_call>", "</tool_call>"
_LEAD = re.compile(r"\s*")


def hermes(source: Source, offered: Collection[str] | None) -> Grammar[None]:
    """Read text and calls. White space around a call belongs to it."""
    number = 0
    while marker := (yield from text_before(source, BEGIN)):
        if not (yield from json_call(source, number, _LEAD, offered)):
            yield AnswerText(marker)
            continue
        number += 1
        yield from skip_space(source)
        yield from skip(source, END)
        yield from skip_space(source)
