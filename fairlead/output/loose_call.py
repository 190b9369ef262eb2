"""Tool calls a little off the format, which models write now and then.

They are read as a whole, since the name may come last. One is a call if its name is that of a tool which was offered,
and anything else stays text.
"""

import json
import re
from collections.abc import Collection
from typing import Any

from fairlead.output.brackets import Brackets
from fairlead.output.events import Arguments, CallBegun
from fairlead.output.model_json import read_json
from fairlead.output.source import MOST_HEAD, Grammar, Source

MOST_OBJECT = 8_192  # characters of a call, which are held back until it is whole
ARGUMENTS = ("arguments", "parameters", "args", "params", "input")  # by which models name them
KEYS = ("name", "type", "id", "function", *ARGUMENTS)  # with one of these it begins
NO_ARGUMENTS = frozenset(("name", "function", "type", "id", "index"))


def loose_call(source: Source, number: int, lead: re.Pattern[str], offered: Collection[str] | None) -> Grammar[bool]:
    """Read a call after what `lead` matches, and return True; if there is none, return False and read nothing."""
    matched = lead.match(source.held)
    begin = matched.end() if matched else 0
    if begin > MOST_HEAD or (offered is not None and not offered):
        return False
    at, brackets = begin, Brackets()
    while True:
        if not _may_be_call(source.held[begin : begin + MOST_HEAD]):
            return False
        size, is_over = brackets.read(source.held[at:])
        at += size
        if at - begin > MOST_OBJECT:
            return False
        if is_over:
            break
        if source.is_ended:
            return False
        yield None
    call = _read(source.held[begin:at], offered)
    if call is None:
        return False
    source.take(at)
    name, arguments = call
    yield CallBegun(number, name)
    yield Arguments(number, arguments)
    return True


def _may_be_call(text: str) -> bool:
    """Return whether an object that begins with `text` may be a call, by its first key."""
    inner = text[1:].lstrip().replace("'", '"')
    return text[:1] in ("{", "") and any(f'"{key}"'.startswith(inner[: len(key) + 2]) for key in KEYS)


def _read(text: str, offered: Collection[str] | None) -> tuple[str, str] | None:
    try:
        return call_of(read_json(text), offered)
    except (ValueError, RecursionError):
        return None


def call_of(value: Any, offered: Collection[str] | None) -> tuple[str, str] | None:
    """Return the name and the arguments of a call, as JSON; None if `value` is none of a tool that was `offered`.

    Its function may be an object within. No arguments, or an empty list of them, are those of an empty object, and a
    text may hold them as JSON;
    raises ValueError if it holds something else.
    """
    if not isinstance(value, dict):
        return None
    function = value["function"] if isinstance(value.get("function"), dict) else value
    name = function.get("name", function.get("function"))
    if not isinstance(name, str) or not name or (offered is not None and name not in offered):
        return None
    key = next((key for key in ARGUMENTS if key in function), None)
    if key is None and not function.keys() <= NO_ARGUMENTS:  # what else there is would be lost
        return None
    arguments = None if key is None else function[key]
    if isinstance(arguments, str):
        arguments = read_json(arguments) if arguments.strip() else None
    arguments = {} if arguments is None or arguments == [] else arguments
    return (name, json.dumps(arguments, ensure_ascii=False)) if isinstance(arguments, dict) else None
