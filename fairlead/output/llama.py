"""Calls as Llama 3 writes them: `{"name": ..., "parameters": {...}}` in place of an answer, separated by `;` or `,`.

They may be a list, and follow the mark of the calls of its own tools.
"""

import re
from collections.abc import Collection

from fairlead.output.events import AnswerText
from fairlead.output.json_call import json_call
from fairlead.output.pattern import Pattern
from fairlead.output.source import Grammar, Source, expect, plain_text, skip, skip_space

_TAG = Pattern(r"\s*<\|python_tag\|>")
_LEAD = re.compile(r"[\s;,\[]*")


def llama(source: Source, offered: Collection[str] | None) -> Grammar[None]:
    """Read calls, and then text: an object that does not begin the output is text."""
    tag = yield from expect(source, _TAG)
    number = 0
    while (yield from json_call(source, number, _LEAD, offered or ())):
        number += 1
        yield from skip_space(source)
    if number:
        yield from skip(source, "]")
        yield from skip_space(source)
    elif tag is not None:
        yield AnswerText(tag[0])
    yield from plain_text(source)
