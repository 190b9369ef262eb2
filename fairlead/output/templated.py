"""Outputs of models that ship a response template, which says how they are read."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fairlead.output.argument_types import ArgumentTypes, typed
from fairlead.output.captured import read_content, transformed
from fairlead.output.events import AnswerText, Arguments, CallBegun, Reasoning
from fairlead.output.json_call import json_call, json_object
from fairlead.output.response_template import ANSWER, CALLS, REASONING, ResponseTemplate, TemplateField
from fairlead.output.source import Grammar, Region, Source, skip_space

_SPACE = re.compile(r"\s*")
_WHOLE_CALL = "{content}"
_NAMED_CALL = {"name": "{name}", "arguments": "{content}"}
# Of a value that is not what its field needs, or is nested too deeply.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def templated(source: Source, template: ResponseTemplate, in_reasoning: bool, types: ArgumentTypes) -> Grammar[None]:
    """Read the regions of an output.

    Calls in JSON are told as they arrive, and others once their region is closed; a region whose calls cannot be read
    is text. Fields that are neither answer, reasoning nor calls are left out.
    """
    patterns = [field.opening for field in template.fields if field.opening is not None]
    if template.rest is not None and template.rest.closing is not None:
        patterns.append(template.rest.closing)
    number = 0
    if in_reasoning and (thought := reasoning_field(template)) is not None:
        yield from _shown(_region(source, thought), thought)
    while not source.is_ended or source.held:
        rest = Region(source, *patterns)
        yield from _shown(rest, template.rest)
        if rest.ending is None or rest.which == len(template.fields):
            continue
        field = template.fields[rest.which]
        if field.name == CALLS:
            number += yield from _calls(source, field, rest.ending, number, types)
        else:
            yield from _shown(_region(source, field), field)


def reasoning_field(template: ResponseTemplate) -> TemplateField | None:
    """Return the field of the reasoning, None if there is none."""
    return next((field for field in template.fields if field.name in REASONING), None)


def _region(source: Source, field: TemplateField) -> Region:
    return Region(source) if field.closing is None else Region(source, field.closing)


def _shown(region: Region, field: TemplateField | None) -> Grammar[None]:
    """Read a region as text, without the white space around it unless its field keeps that."""
    name = "" if field is None else field.name
    kind: Callable[[str], AnswerText | Reasoning] | None
    kind = AnswerText if name == ANSWER else Reasoning if name in REASONING else None
    strips = field is not None and field.options.get("strip", True)
    space, has_begun = "", not strips
    for piece in region:
        if piece is None:
            yield None
        elif kind is not None:
            text = space + piece if has_begun else piece.lstrip()
            shown = text.rstrip() if strips else text
            space = text[len(shown) :]
            if shown:
                has_begun = True
                yield kind(shown)


def _calls(
    source: Source, field: TemplateField, opening: re.Match[str], number: int, types: ArgumentTypes
) -> Grammar[int]:
    """Read a region of calls, and return their number."""
    region = _region(source, field)
    if (yield from _arriving(source, field, opening, number, types)):
        yield from _shown(region, None)
        return 1
    pieces: list[str] = []
    for piece in region:
        if piece is None:
            yield None
        else:
            pieces.append(piece)
    try:
        calls = [*_functions(_value("".join(pieces), field, opening.groupdict()), types)]
    except _UNREADABLE:
        closing = "" if region.ending is None else region.ending[0]
        yield AnswerText("".join((opening[0], *pieces, closing)))
        return 0
    for place, (name, arguments) in enumerate(calls, number):
        yield CallBegun(place, name)
        yield Arguments(place, arguments)
    return len(calls)


def _arriving(
    source: Source, field: TemplateField, opening: re.Match[str], number: int, types: ArgumentTypes
) -> Grammar[bool]:
    """Read one call in JSON as it arrives, and return True; return False, and read nothing, if it is no such call."""
    function = field.transform.get("function") if isinstance(field.transform, dict) else None
    if field.content != "json" or field.options or field.transforms_each:
        return False
    if function == _WHOLE_CALL:
        return (yield from json_call(source, number, _SPACE, types))
    name = opening.groupdict().get("name")
    if function == _NAMED_CALL and name and (yield from skip_space(source)) == "{":
        yield CallBegun(number, name)
        yield from json_object(source, number)
        return True
    return False


def _value(body: str, field: TemplateField, captured: Mapping[str, str | None]) -> Any:
    value = read_content(body, field.content, field.options)
    if field.transform is None:
        return value
    known = {key: text for key, text in captured.items() if text is not None}
    if field.transforms_each:
        return [transformed(field.transform, {**known, **each}) for each in value]
    return transformed(field.transform, {**known, "content": value})


def _functions(value: Any, types: ArgumentTypes) -> Iterator[tuple[str, str]]:
    """Yield the names and arguments of a field's calls; texts become what the tool's schema has them be."""
    for call in value if isinstance(value, list) else [value]:
        function = call.get("function", call)
        name = function["name"]
        if not isinstance(name, str) or not name:
            raise TypeError(name)
        arguments = function.get("arguments") if name in types else function["arguments"]
        arguments = {} if arguments is None else arguments
        if isinstance(arguments, dict):
            known = types.get(name, {})
            arguments = {key: _typed(each, known.get(key, ())) for key, each in arguments.items()}
        yield name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _typed(value: Any, types: Sequence[str]) -> Any:
    if isinstance(value, list) and types and "array" not in types:
        return [_typed(each, types) for each in value]
    return typed(value, types) if isinstance(value, str) else value
