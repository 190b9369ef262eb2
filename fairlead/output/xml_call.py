"""Calls in which each argument has an element of its own, and is written as a bare text.

Arguments are told as JSON. Those which can only be strings are told as they arrive, and others once they are whole.
A model may also write a call as a JSON object between the tags, as Hermes does, or its arguments as one, and forget to
close the element of an argument before the next one or the end of the call.
"""

import json
import re
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from fairlead.output.argument_types import ArgumentTypes, typed
from fairlead.output.events import AnswerText, Arguments, CallBegun
from fairlead.output.json_call import json_object
from fairlead.output.loose_call import loose_call
from fairlead.output.pattern import Pattern
from fairlead.output.source import Grammar, Region, Source, expect, skip, skip_space, text_before

BEGIN, END = "<tool_call>", "</tool_call>"
LEAD = re.compile(r"\s*")


class XmlSyntax(NamedTuple):
    """The notation of calls in a format, between `BEGIN` and `END`.

    The first group of `head` is the name of the function, and that of `key` the name of an argument, whose value
    follows up to `end`. Line breaks that belong to a format are parts of its patterns, and of no value.
    """

    head: Pattern
    key: Pattern
    end: Pattern
    closing: str  # follows the last argument
    bare: str = ""  # begins a head that stands without `BEGIN`, as models write it now and then
    bare_head: Pattern | None = None  # what follows it, up to the first argument or the end


QWEN_CODER = XmlSyntax(
    Pattern(r"\s*<function(?:=| name=)[\"']?([^<>\s\"']+)[\"']?>"),
    Pattern(r"\s*<parameter(?:=| name=)[\"']?([^<>\n\"']+)[\"']?>\n?"),
    Pattern(r"\n?</parameter>|\n(?=<parameter=[^<>\n]+>\n)|\n?(?=</function>\s*</tool_call>)"),
    "</function>",
    "<function=",
    Pattern(r"[\"']?([^<>\s\"']+)[\"']?>(?=\s*(?:<parameter=|</function>|\{))"),
)
GLM = XmlSyntax(
    Pattern(r"\s*([\w.\-]+)\s*(?=<arg_key>|</tool_call>)"),
    Pattern(r"\s*<arg_key>\s*([^<>\s]+)\s*</arg_key>\s*<arg_value>"),
    Pattern(r"</arg_value>|\n?(?=<arg_key>[^<>\n]+</arg_key>\s*<arg_value>)"),
    "",
)


def xml_calls(source: Source, syntax: XmlSyntax, types: ArgumentTypes) -> Grammar[None]:
    """Read text and calls. White space around a call belongs to it."""
    number = 0
    markers = [BEGIN, syntax.bare] if syntax.bare and types else [BEGIN]
    while marker := (yield from text_before(source, *markers)):
        head = yield from _head(source, marker, syntax, types)
        if head is not None:
            yield from _call(source, number, head[1], syntax, types)
        elif not marker.endswith(BEGIN) or not (yield from loose_call(source, number, LEAD, types)):
            yield AnswerText(marker)
            continue
        number += 1
        yield from skip_space(source)
        yield from skip(source, END)
        yield from skip_space(source)


def xml_call(source: Source, number: int, syntax: XmlSyntax, types: ArgumentTypes) -> Grammar[bool]:
    """Read a call of a tool that was offered, and return True; if there is none, return False and read nothing."""
    head = yield from expect(source, syntax.head)
    if head is None:
        return False
    if head[1] not in types:
        source.held = head[0] + source.held
        return False
    yield from _call(source, number, head[1], syntax, types)
    return True


def _call(source: Source, number: int, name: str, syntax: XmlSyntax, types: ArgumentTypes) -> Grammar[None]:
    """Read what follows a head."""
    yield CallBegun(number, name)
    if (yield from skip_space(source)) == "{":
        yield from json_object(source, number)
    else:
        yield from _arguments(source, number, syntax, types.get(name, {}))
    yield from skip_space(source)
    yield from skip(source, syntax.closing)


def _head(source: Source, marker: str, syntax: XmlSyntax, offered: Container[str]) -> Grammar[re.Match[str] | None]:
    """Read the head of a call after `marker`; read nothing and return None if it is none, or not of a tool."""
    if syntax.bare_head is None or marker.endswith(BEGIN):
        return (yield from expect(source, syntax.head))
    head = yield from expect(source, syntax.bare_head)
    if head is not None and head[1] not in offered:
        source.held = head[0] + source.held
        return None
    return head


def _arguments(source: Source, number: int, syntax: XmlSyntax, types: Mapping[str, Sequence[str]]) -> Grammar[None]:
    """Read the arguments as one JSON object, which stays open if the output ends within them."""
    before = "{"
    while key := (yield from expect(source, syntax.key)):
        yield Arguments(number, f"{before}{json.dumps(key[1], ensure_ascii=False)}: ")
        before = ", "
        value, known = Region(source, syntax.end), types.get(key[1], ())
        yield from _text(value, number) if set(known) <= {"string"} else _typed(value, number, known)
    if source.held.strip():
        yield Arguments(number, "{}" if before == "{" else "}")


def _text(value: Region, number: int) -> Grammar[None]:
    """Read an argument that is a string."""
    yield Arguments(number, '"')
    for piece in value:
        yield None if piece is None else Arguments(number, json.dumps(piece, ensure_ascii=False)[1:-1])
    if value.ending is not None:
        yield Arguments(number, '"')


def _typed(value: Region, number: int, types: Sequence[str]) -> Grammar[None]:
    """Read an argument whose type shows at its end."""
    pieces: list[str] = []
    for piece in value:
        if piece is None:
            yield None
        else:
            pieces.append(piece)
    if value.ending is not None:
        yield Arguments(number, json.dumps(typed("".join(pieces), types), ensure_ascii=False))
