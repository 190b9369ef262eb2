"""JSON schemas in the form that llguidance reads, and what of them takes more time than their bytes suggest.

The library refuses keywords that it does not know, also where they say nothing. These are left out: a format that is
unknown is an annotation (JSON Schema 2020-12, Validation, section 7.2.3), and so is the name of a dialect.
"""

from collections.abc import Iterator
from math import prod
from typing import Any
from urllib.parse import quote

from local_worker.json_schemas.conditions import unconditional
from local_worker.json_schemas.negation import Opposites
from local_worker.json_schemas.patterns import rust_pattern
from local_worker.json_schemas.rewriting import distinct_items, evaluated, named_properties

MOST_PATTERNS = 100  # of one object: their time grows with the fourth power
MOST_COMBINATIONS = 1000  # of alternatives that hold at once
FORMATS = frozenset(("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"))
ANNOTATIONS = frozenset(("$comment", "description", "title"))
LARGEST = 10**17  # a number with a larger limit stays within this one, which the library can describe
# Of schemas by name; of `dependencies` some are lists of names.
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
ONE = ("items", "additionalProperties", "additionalItems", "contains", "not", "if", "then", "else", "propertyNames")
# Keywords whose value may be an object. A schema that has only other keys says nothing by them.
OF_OBJECTS = frozenset((*MAPS, *ONE, "const", "default", "unevaluatedItems", "unevaluatedProperties"))
# Values with which a keyword allows everything.
IDLE: dict[str, tuple[Any, ...]] = {
    "uniqueItems": (False,),
    "propertyNames": (True, {}, {"type": "string"}),
    "unevaluatedProperties": (True, {}),
    "unevaluatedItems": (True, {}),
    "dependencies": ({},),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
}
# Keywords that say nothing without one of these beside them.
BESIDE: dict[str, tuple[str, ...]] = {
    "if": ("then", "else"),
    "then": ("if",),
    "else": ("if",),
    "minContains": ("contains",),
    "maxContains": ("contains",),
}
NAMES = frozenset(("$dynamicAnchor", "$recursiveAnchor"))  # for references that are refused
DIALECTS = frozenset(
    (
        *(f"http://json-schema.org/draft-0{number}/schema" for number in (4, 6, 7)),
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    )
)
URI = ":/?#[]@!$&'()*+,;=%~"  # characters that a reference has; others are written by their numbers


def plain(schema: Any) -> Any:
    """Return `schema` without keywords that say nothing, and with others put by those that the library knows.

    A schema that refuses everything is False.
    """
    return plain_part(schema, Opposites(schema))


def plain_part(schema: Any, opposites: Opposites) -> Any:
    """Return the same of a part of a schema."""
    if not isinstance(schema, dict):
        return schema
    if is_group(schema):
        return {name: plain_part(each, opposites) for name, each in schema.items()}
    kept = {key: _inner(key, value, opposites) for key, value in schema.items() if not _is_idle(key, schema)}
    if kept.get("not", False) in (True, {}) and kept.keys() <= {"not", *ANNOTATIONS}:
        return False
    if any(each in (True, {}) for each in _listed(kept.get("anyOf"))):
        del kept["anyOf"]
    named = named_properties(evaluated(kept, opposites.root), opposites.root)
    return unconditional(distinct_items(named, opposites.root), opposites)


def is_group(schema: dict[str, Any]) -> bool:
    """Return whether `schema` is none, but holds schemas by name, as some do among their definitions."""
    return bool(schema) and not schema.keys() & OF_OBJECTS and all(isinstance(each, dict) for each in schema.values())


def _inner(key: str, value: Any, opposites: Opposites) -> Any:
    match key, value:
        case "patternProperties", dict():
            return {rust_pattern(name): plain_part(each, opposites) for name, each in value.items()}
        case _, dict() if key in MAPS:
            return {name: plain_part(each, opposites) for name, each in value.items()}
        case _, list() if key in LISTS:
            return [plain_part(each, opposites) for each in value]
        case "pattern", str():
            return rust_pattern(value)
        case "$ref", str():
            return quote(value, safe=URI)
        case "$id", str():  # a fragment of it names nothing that is told apart by it
            return value if value.startswith("#") else value.partition("#")[0]
        case "minimum" | "exclusiveMinimum", int() | float():
            return max(value, -LARGEST)
        case "maximum" | "exclusiveMaximum", int() | float():
            return min(value, LARGEST)
    return plain_part(value, opposites) if key in ONE else value


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_idle(key: str, schema: dict[str, Any]) -> bool:
    value = schema[key]
    if key == "format":
        return isinstance(value, str) and value not in FORMATS
    if key == "$schema":
        return isinstance(value, str) and value.removesuffix("#") not in DIALECTS
    if key in BESIDE:
        return not any(other in schema for other in BESIDE[key])
    return key in NAMES or any(
        value is idle or (isinstance(idle, dict) and value == idle) for idle in IDLE.get(key, ())
    )


def check_schema(schema: Any) -> None:
    """Raise ValueError, which names the keyword, the limit and the value, for a schema with too much of a part."""
    for part in _parts(schema):
        patterns = part.get("patternProperties")
        if isinstance(patterns, dict) and len(patterns) > MOST_PATTERNS:
            raise ValueError(f"patternProperties: at most {MOST_PATTERNS} of one object, got {len(patterns)}")
        combined = prod(_alternatives(part))
        if combined > MOST_COMBINATIONS:
            raise ValueError(
                f"allOf: at most {MOST_COMBINATIONS} combinations of the alternatives in its schemas, got {combined}"
            )


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects that `schema` consists of, at any depth."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def _alternatives(schema: dict[str, Any]) -> Iterator[int]:
    """Yield the numbers of alternatives among which a value of `schema` takes one each."""
    for part in [schema, *_listed(schema.get("allOf"))]:
        for key in ("anyOf", "oneOf"):
            if isinstance(part, dict) and isinstance(part.get(key), list):
                yield max(1, len(part[key]))
