"""Grammars of calls whose arguments are elements with bare texts, as fairlead.output.xml_call reads them.

A text has the type that the tool's schema leads the reader to. So the grammar derives the texts which are read as valid
values, and a schema is refused where these are not known: where they depend on more than the argument itself, or are
strings with a length or a form.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fairlead.errors import InvalidRequest
from fairlead.output.argument_types import typed
from local_worker.argument_types import MOST_STEPS, listed, referred, types_of
from local_worker.json_schemas.options import json_options

TOOLS = "prompt.chat.tools"
NOTES = {"$comment", "$schema", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"}
OF_ARGUMENTS = NOTES | {"$defs", "additionalProperties", "definitions", "properties", "required", "type"}
OF_TEXTS = NOTES | {"anyOf", "nullable", "oneOf", "type"}


class XmlCallSyntax(NamedTuple):
    """The notation of the parts of a call in a format, in which `{}` is a name; `end` stands after a value.

    `others` is the expression of the other texts with which the reader takes a value for ended.
    """

    head: str
    key: str
    end: str
    closing: str
    others: str


XML_SYNTAXES: Mapping[str, XmlCallSyntax] = {
    "qwen_coder": XmlCallSyntax(
        "<function={}>\n",
        "<parameter={}>\n",
        "\n</parameter>",
        "</function>",
        r"\n<parameter=[^<>\n]+>\n|</function>\s*</tool_call>",
    ),
    "glm": XmlCallSyntax(
        "{}\n", "<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>", "", r"<arg_key>[^<>\n]+</arg_key>\s*<arg_value>"
    ),
}


def xml_call(rule: str, tool: Mapping[str, Any], is_strict: bool, syntax: XmlCallSyntax) -> Iterator[str]:
    """Yield the rules of a call of `tool`; the first one has the name `rule`.

    Raise InvalidRequest for a schema whose valid arguments are not known.
    """
    head, closing = _quoted(syntax.head.format(tool["name"])), _quoted(syntax.closing)
    free = f"{rule}_text"
    if not is_strict:
        before, after = (_expression(part) for part in syntax.key.split("{}"))
        yield rf'{rule}: {head} (/{before}[^<>\s]+{after}/ {free} "\n")* {closing}'
        yield _free_text(free, syntax)
        return
    schema = tool["parameters"]
    _check(schema, OF_ARGUMENTS, tool["name"])
    properties, required = schema.get("properties", {}), listed(schema.get("required"))
    if not isinstance(properties, Mapping) or not all(key in properties for key in required):
        raise _refused(tool["name"], "required has a name which properties lacks")
    names = {key: f"{rule}_{number}" for number, key in enumerate(properties)}
    arguments = " ".join(name if key in required else f"{name}?" for key, name in names.items())
    yield f"{rule}: {head} {arguments} {closing}"
    for key, name in names.items():
        place = f"{tool['name']}.{key}"
        if not re.fullmatch(r"[^<>\s]+", key):
            raise _refused(place, "the name has a space or a bracket")
        value = _value(place, properties[key], schema, syntax) or free
        yield rf'{name}: {_quoted(syntax.key.format(key))} {value} "\n"'
    yield _free_text(free, syntax)


def _free_text(rule: str, syntax: XmlCallSyntax) -> str:
    """Return the rule of any text with its end."""
    others = _expression(syntax.others)
    return rf"{rule}[lazy]: /(.|\n)*{_expression(syntax.end.strip())}/ & ~/(.|\n)*({others})(.|\n)*/"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _expression(text: str) -> str:
    return text.replace("/", r"\/").replace("\n", r"\n")


def _value(place: str, schema: Any, root: Mapping[str, Any], syntax: XmlCallSyntax) -> str:
    """Return the expression of an argument's texts and of their end; empty if they are any."""
    known, types = _resolved(schema, root), types_of(schema, root)
    end = _quoted(syntax.end)
    values = [known["const"]] if "const" in known else known.get("enum")
    if isinstance(values, list):
        texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
        is_plain = values != [] and [typed(each, types) for each in texts] == values
        ends = re.compile(f"{syntax.end.strip()}|{syntax.others}")
        if not is_plain or any(map(ends.search, texts)):
            raise _refused(place, "its values cannot be told apart as texts")
        return f"({' | '.join(map(_quoted, texts))}) {end}"
    if types and "string" not in types:
        definitions = {key: root[key] for key in ("$defs", "definitions") if key in root}
        return f"%json {json.dumps({**known, **definitions, 'x-guidance': dict(json_options())})} {end}"
    for each in (known, *listed(known.get("anyOf")), *listed(known.get("oneOf"))):
        _check(each, OF_TEXTS, place)
    return ""


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `schema` with what it refers to; a schema that refers to itself refers to anything."""
    known: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {"not": {}} if schema is False else {}
    for _ in range(MOST_STEPS):
        if "$ref" not in known:
            break
        further = referred(str(known["$ref"]), root)
        own = {key: value for key, value in known.items() if key != "$ref"}
        known = {**further, **own} if isinstance(further, Mapping) else own
    return known


def _check(schema: Any, understood: set[str], place: str) -> None:
    unknown = sorted(schema.keys() - understood) if isinstance(schema, Mapping) else [schema]
    if unknown:
        raise _refused(place, f"the schema has {unknown}")


def _refused(place: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"calls of {place} cannot be promised in the model's format: {reason}", TOOLS)
