"""Calls as Hermes and Qwen write them: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, each by itself.

Models also write several of them between the tags, some as a list, and brackets too many.
"""

import re
from collections.abc import Collection

from fairlead.output.events import AnswerText
from fairlead.output.json_call import json_call
from fairlead.output.source import Grammar, Source, skip, skip_space, text_before

BEGIN, END = "<tool_call>", "</tool_call>"
_LEAD = re.compile(r"[\s\[,]*")


def hermes(source: Source, offered: Collection[str] | None) -> Grammar[None]:
    """Read text and calls. White space around a call belongs to it."""
    number = 0
    while marker := (yield from text_before(source, BEGIN)):
        first = number
        while (yield from json_call(source, number, _LEAD, offered)):
            number += 1
            yield from skip_space(source)
        if number == first:
            yield AnswerText(marker)
            continue
        for closing in ("}", "]", END):
            yield from skip(source, closing)
            yield from skip_space(source)
