"""Calls as Hermes and Qwen write them: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, each by itself.

Models also write several of them between the tags, some as a list, brackets too many, a fence of Markdown around them,
or the elements of Qwen Coder.
"""

import re

from fairlead.output.argument_types import ArgumentTypes
from fairlead.output.events import AnswerText
from fairlead.output.json_call import json_call
from fairlead.output.pattern import Pattern
from fairlead.output.source import Grammar, Source, expect, skip, skip_space, text_before
from fairlead.output.xml_call import QWEN_CODER, xml_call

BEGIN, END = "<tool_call>", "</tool_call>"
_LEAD = re.compile(r"(?:[\s\[,]|\{(?=\s*\{))*")
_FENCE = Pattern(r"\s*```\w*")


def hermes(source: Source, offered: ArgumentTypes | None) -> Grammar[None]:
    """Read text and calls. White space around a call belongs to it."""
    number = 0
    while marker := (yield from text_before(source, BEGIN)):
        first = number
        fence = yield from expect(source, _FENCE)
        while (yield from json_call(source, number, _LEAD, offered)):
            number += 1
            yield from skip_space(source)
        if number == first and offered and (yield from xml_call(source, number, QWEN_CODER, offered)):
            number += 1
            yield from skip_space(source)
        if number == first:
            yield AnswerText(marker + (fence[0] if fence else ""))
            continue
        for closing in ("}", "]", "```", END):
            yield from skip(source, closing)
            yield from skip_space(source)
