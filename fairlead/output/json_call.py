"""A tool call as a JSON object that begins with its name: `{"name": "weather", "arguments": {"city": "Paris"}}`.

A call is told as soon as its name and the beginning of its arguments are there, and the arguments as they arrive.
They are therefore passed on as the model writes them, complete or not. What is written otherwise may be a loose call.
"""

import re
from collections.abc import Collection

from fairlead.output.brackets import Brackets
from fairlead.output.events import Arguments, CallBegun
from fairlead.output.loose_call import loose_call
from fairlead.output.model_json import JsonWriter
from fairlead.output.source import MOST_HEAD, Grammar, Source, skip_space

STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_HEAD = re.compile(
    rf'\{{\s*(?:"(?:id|type)"\s*:\s*{STRING}\s*,\s*)*"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*',
    re.DOTALL,
)
_FIRST_KEYS = ('"name"', '"type"', '"id"')
_BEFORE_BRACKET = re.compile(rf'\{{(?:[^"{{}}\[\]]|{STRING})*', re.DOTALL)
_UNDECIDED = re.compile(
    r"(?:T|Tr|Tru|F|Fa|Fal|Fals|N|No|Non|,\s{0,32})\Z"
)  # an end that may become a JsonWriter's mark


def json_call(source: Source, number: int, lead: re.Pattern[str], offered: Collection[str] | None) -> Grammar[bool]:
    """Read a call after what `lead` matches, and return True; if there is no call, return False and read nothing.

    `offered` are the names of the tools, None if they are unknown.
    """
    while (head := _head(source.held, lead)) is None:
        if source.is_ended:
            return False
        yield None
    if not head:
        return (yield from loose_call(source, number, lead, offered))
    name, size = head
    source.take(size)
    yield CallBegun(number, name)
    yield from json_object(source, number)
    following = yield from skip_space(source)
    if following == "}":
        source.take(1)
    elif following == ",":  # further fields, such as an id
        yield from _skip_object(source)
    return True


def _head(text: str, lead: re.Pattern[str]) -> tuple[str, int] | tuple[()] | None:
    """Return a call's name and the place of its arguments; nothing if there is no call, None if more text decides."""
    matched = lead.match(text)
    begin = matched.end() if matched else 0
    before = _BEFORE_BRACKET.match(text, begin)
    if begin > MOST_HEAD or (before is None and begin < len(text)):
        return ()
    if before is None:
        return None
    end = before.end()
    bracket = text[end : end + 1]
    if bracket == "{" and end <= MOST_HEAD and (head := _HEAD.fullmatch(text, begin, end)):
        return head[1], end
    is_undecided = bracket in ('"', "") and len(text) <= MOST_HEAD and _may_begin(text[begin + 1 :].lstrip())
    return None if is_undecided else ()


def _may_begin(fields: str) -> bool:
    return any(key.startswith(fields[: len(key)]) for key in _FIRST_KEYS)


def json_object(source: Source, number: int) -> Grammar[None]:
    """Read arguments: up to the bracket that closes the first one, or to what not even a model writes as JSON."""
    brackets, writer, undecided = Brackets(), JsonWriter(), ""
    while True:
        size, is_over = brackets.read(source.held)
        if source.is_ended and not is_over:
            size = len(source.held)
        text, is_whole = undecided + source.take(size), is_over or source.is_ended
        end = None if is_whole or brackets.is_in_string else _UNDECIDED.search(text)
        text, undecided = (text[: end.start()], end[0]) if end else (text, "")
        if text:
            yield Arguments(number, writer.written(text))
        if is_whole:
            return
        yield None


def _skip_object(source: Source) -> Grammar[None]:
    """Skip the rest of an object that has begun, or what of it is JSON."""
    brackets = Brackets("}")
    while True:
        size, is_over = brackets.read(source.held)
        source.take(len(source.held) if source.is_ended and not is_over else size)
        if is_over or source.is_ended:
            return
        yield None
