"""Calls as Llama 3 writes them: `{"name": ..., "parameters": {...}}` in place of an answer, separated by `;` or `,`."""

import re
from collections.abc import Collection
from itertools import count

from fairlead.output.json_call import json_call
from fairlead.output.source import Grammar, Source, plain_text, skip_space

_LEAD = re.compile(r"[\s;,]*")


def llama(source: Source, offered: Collection[str] | None) -> Grammar[None]:
    """Read calls, and then text: an object that does not begin the output is text."""
    for number in count():
        if not (yield from json_call(source, number, _LEAD, offered or ())):
            break
        yield from skip_space(source)
    yield from plain_text(source)
