"""Calls in which each argument has an element of its own, and is written as a bare text.

Arguments are told as JSON. Those which can only be strings are told as they arrive, and others once they are whole.
"""

import json
import re
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from fairlead.output.argument_types import ArgumentTypes, typed
from fairlead.output.events import AnswerText, Arguments, CallBegun
from fairlead.output.pattern import Pattern
from fairlead.output.source import Grammar, Region, Source, expect, skip, skip_space, text_before

BEGIN, END = "<tool_call>", "</tool_call>"


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
    Pattern(r"\s*<function=([^<>\s]+)>"),
    Pattern(r"\s*<parameter=([^<>\n]+)>\n?"),
    Pattern(r"\n?</parameter>"),
    "</function>",
    "<function=",
    Pattern(r"([^<>\s]+)>(?=\s*<(?:parameter=|/function>))"),
)
GLM = XmlSyntax(
    Pattern(r"\s*([\w.\-]+)\s*(?=<arg_key>|</tool_call>)"),
    Pattern(r"\s*<arg_key>\s*([^<>\s]+)\s*</arg_key>\s*<arg_value>"),
    Pattern(r"</arg_value>"),
    "",
)


def xml_calls(source: Source, syntax: XmlSyntax, types: ArgumentTypes) -> Grammar[None]:
    """Read text and calls. White space around a call belongs to it."""
    number = 0
    markers = [BEGIN, syntax.bare] if syntax.bare and types else [BEGIN]
    while marker := (yield from text_before(source, *markers)):
        head = yield from _head(source, marker, syntax, types)
        if head is None:
            yield AnswerText(marker)
            continue
        yield CallBegun(number, head[1])
        yield from _arguments(source, number, syntax, types.get(head[1], {}))
        number += 1
        for mark in (syntax.closing, END):
            yield from skip_space(source)
            yield from skip(source, mark)
        yield from skip_space(source)


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
