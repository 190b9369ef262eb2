"""A check of what is valid under a JSON schema, by the words of draft 2020-12, for keywords that workers accept.

It shares nothing with llguidance. Of formats it knows those of the tests.
"""

import datetime
import ipaddress
import re
import uuid
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

Schema = Mapping[str, Any] | bool
TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: TYPES["number"](value) and value == int(value),
}
FORMATS: Mapping[str, Callable[[str], object]] = {
    "date": lambda text: datetime.date.fromisoformat(f"2024{text[4:]}"),  # of no certain year, see docs/http.md
    "ipv4": ipaddress.IPv4Address,
    "uuid": uuid.UUID,
}
IDENTIFIERS = ("$schema", "$id", "$anchor", "$defs")
NOTES = ("$comment", "title", "default", "examples", "contentEncoding", "contentMediaType", "unheard-of")


def is_valid(schema: Schema, value: Any, root: Schema | None = None) -> bool:
    """Whether `value` is valid; raises ValueError for a keyword that the check does not know."""
    if isinstance(schema, bool):
        return schema
    top = schema if root is None else root
    return all(_holds(keyword, schema, value, top) for keyword in schema if keyword not in (*IDENTIFIERS, *NOTES))


def _holds(keyword: str, schema: Mapping[str, Any], value: Any, root: Schema) -> bool:
    given = schema[keyword]
    if keyword == "if":
        return is_valid(schema.get("then" if is_valid(given, value, root) else "else", True), value, root)
    if keyword in ("then", "else"):
        return True  # a part of the keyword `if`
    if keyword in ANY:
        return ANY[keyword](given, value, root)
    for kind, keywords in ((str, STRINGS), (list, ARRAYS), (dict, OBJECTS)):
        if keyword in keywords:
            return not isinstance(value, kind) or keywords[keyword](schema, given, value, root)
    if keyword in NUMBERS:
        return not TYPES["number"](value) or NUMBERS[keyword](given, value)
    raise ValueError(f"the keyword {keyword!r} is not known")


def _same(one: Any, other: Any) -> bool:
    """Whether both are the same JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(part, other[name]) for name, part in one.items())
    return bool(one == other)


def _is_formed(name: str, value: Any) -> bool:
    try:
        return not isinstance(value, str) or bool(FORMATS[name](value))
    except ValueError:
        return False


def _named(reference: str, root: Any) -> Any:
    """The schema to which a reference within the same document leads."""
    if reference.startswith("#/"):
        for part in reference[2:].split("/"):
            root = root[part.replace("~1", "/")]
    elif reference != "#":
        root = next(each for each in root["$defs"].values() if each.get("$anchor") == reference[1:])
    return root


def _further(schema: Mapping[str, Any], value: Mapping[str, Any]) -> list[Any]:
    """The values of properties that neither `properties` nor `patternProperties` describe."""
    patterns = schema.get("patternProperties", {})
    described = schema.get("properties", {})
    return [
        part
        for name, part in value.items()
        if name not in described and not any(re.search(pattern, name) for pattern in patterns)
    ]


def _is_evaluated(schema: Schema, name: str, root: Schema) -> bool:
    """Whether a property is described by another keyword, which holds for every value."""
    if isinstance(schema, bool):
        return False
    within = [*schema.get("allOf", ()), *([_named(schema["$ref"], root)] if "$ref" in schema else ())]
    return (
        "additionalProperties" in schema
        or name in schema.get("properties", {})
        or any(re.search(pattern, name) for pattern in schema.get("patternProperties", {}))
        or any(_is_evaluated(each, name, root) for each in within)
    )


ANY: Mapping[str, Callable[[Any, Any, Schema], bool]] = {
    "type": lambda given, value, root: any(TYPES[t](value) for t in ([given] if isinstance(given, str) else given)),
    "enum": lambda given, value, root: any(_same(each, value) for each in given),
    "const": lambda given, value, root: _same(given, value),
    "anyOf": lambda given, value, root: any(is_valid(each, value, root) for each in given),
    "allOf": lambda given, value, root: all(is_valid(each, value, root) for each in given),
    "oneOf": lambda given, value, root: sum(is_valid(each, value, root) for each in given) == 1,
    "$ref": lambda given, value, root: is_valid(_named(given, root), value, root),
    "format": lambda given, value, root: _is_formed(given, value),
    "not": lambda given, value, root: not is_valid(given, value, root),
}
NUMBERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda given, value: value >= given,
    "maximum": lambda given, value: value <= given,
    "exclusiveMinimum": lambda given, value: value > given,
    "exclusiveMaximum": lambda given, value: value < given,
    "multipleOf": lambda given, value: value % given == 0,
}
Part = Callable[[Mapping[str, Any], Any, Any, Schema], bool]
STRINGS: Mapping[str, Part] = {
    "minLength": lambda schema, given, value, root: len(value) >= given,
    "maxLength": lambda schema, given, value, root: len(value) <= given,
    "pattern": lambda schema, given, value, root: re.search(given, value) is not None,
}
ARRAYS: Mapping[str, Part] = {
    "uniqueItems": lambda schema, given, value, root: (
        not given or not any(_same(one, other) for one, other in combinations(value, 2))
    ),
    "minItems": lambda schema, given, value, root: len(value) >= given,
    "maxItems": lambda schema, given, value, root: len(value) <= given,
    "prefixItems": lambda schema, given, value, root: all(
        is_valid(each, part, root) for each, part in zip(given, value, strict=False)
    ),
    "unevaluatedItems": lambda schema, given, value, root: (
        "items" in schema or all(is_valid(given, part, root) for part in value[len(schema.get("prefixItems", ())) :])
    ),
    "items": lambda schema, given, value, root: all(
        is_valid(given, part, root) for part in value[len(schema.get("prefixItems", ())) :]
    ),
}
OBJECTS: Mapping[str, Part] = {
    "required": lambda schema, given, value, root: all(name in value for name in given),
    "dependentRequired": lambda schema, given, value, root: all(
        each in value for name, needed in given.items() if name in value for each in needed
    ),
    "dependentSchemas": lambda schema, given, value, root: all(
        is_valid(needed, value, root) for name, needed in given.items() if name in value
    ),
    "minProperties": lambda schema, given, value, root: len(value) >= given,
    "maxProperties": lambda schema, given, value, root: len(value) <= given,
    "properties": lambda schema, given, value, root: all(
        is_valid(given[name], part, root) for name, part in value.items() if name in given
    ),
    "patternProperties": lambda schema, given, value, root: all(
        is_valid(each, part, root)
        for name, part in value.items()
        for pattern, each in given.items()
        if re.search(pattern, name)
    ),
    "propertyNames": lambda schema, given, value, root: all(is_valid(given, name, root) for name in value),
    "unevaluatedProperties": lambda schema, given, value, root: all(
        is_valid(given, part, root) for name, part in value.items() if not _is_evaluated(schema, name, root)
    ),
    "additionalProperties": lambda schema, given, value, root: all(
        is_valid(given, part, root) for part in _further(schema, value)
    ),
}
