"""Why llguidance cannot compile a JSON schema: which keyword it is, where it is, and what to write instead."""

import re
from collections.abc import Iterator
from typing import Any

from local_worker.plain_schema import LISTS, MAPS, ONE

MOST_PLACES = 3  # of one keyword
LONGEST_PLACE = 100  # characters
UNKNOWN = "Unimplemented keys"  # the library's words
OVERLAPPING = "Enable 'coerce_one_of' option"
NOT_HERE = re.compile(r"Resource ('[^']*') is not present in a registry")
# What the library says clearly, and what its reader can do.
REMEDIES = {
    "are not disjoint": "write them so that no name matches both",
    "min/maxProperties only supported": "require these, or leave the limit out and check the output",
    "grammar size": "leave out parts of the schema",
}
CASES = "use anyOf with a schema for each case"
CHECK = "leave it out and check the output"
ADVICE = {
    "uniqueItems": CHECK,
    "contains": CHECK,
    "minContains": CHECK,
    "maxContains": CHECK,
    "not": "describe what is allowed instead",
    "if": CASES,
    "then": CASES,
    "else": CASES,
    "dependencies": CASES,
    "dependentRequired": CASES,
    "dependentSchemas": CASES,
    "propertyNames": "use patternProperties and additionalProperties",
    "unevaluatedProperties": "use additionalProperties",
    "unevaluatedItems": "use items",
    "$dynamicRef": "use $ref",
    "$recursiveRef": "use $ref",
}


def schema_refusal(error: str, schema: Any) -> str:
    """Return what the library's `error` about `schema` means to its author; without a schema no places are named."""
    if found := NOT_HERE.search(error):
        return f"{found[1]} is not present in the schema; references to other documents are not followed"
    places = _places(schema)
    if OVERLAPPING in error:  # an option that no caller can set
        reason = "a value could be valid under several of its schemas, which cannot be excluded; use anyOf"
        return f"oneOf{_listed(places, 'oneOf')}: {reason}"
    refused = [key for key in ADVICE if key in places or f'"{key}"' in error]
    if UNKNOWN not in error or not refused:
        return next((f"{error}; {remedy}" for words, remedy in REMEDIES.items() if words in error), error)
    by_advice: dict[str, list[str]] = {}
    for key in refused:
        by_advice.setdefault(ADVICE[key], []).append(f"{key}{_listed(places, key)}")
    return "not supported: " + "; ".join(f"{', '.join(keys)}: {advice}" for advice, keys in by_advice.items())


def _listed(places: dict[str, list[str]], key: str) -> str:
    """Return the first places of a keyword, as JSON pointers to the schemas that have it, and their number."""
    found = places.get(key, [])
    shown = [place if len(place) <= LONGEST_PLACE else f"{place[:LONGEST_PLACE]}..." for place in found[:MOST_PLACES]]
    more = len(found) - len(shown)
    return f" (at {', '.join(shown)}{f' and {more} more' if more else ''})" if found else ""


def _places(schema: Any) -> dict[str, list[str]]:
    """Return the places of each keyword in `schema`; that of the whole is #."""
    places: dict[str, list[str]] = {}
    for place, part in _schemas("#", schema):
        for key in part:
            places.setdefault(key, []).append(place)
    return places


def _schemas(place: str, schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a schema and all schemas within it with their places."""
    if not isinstance(schema, dict):
        return
    yield place, schema
    for key, value in schema.items():
        inner: Any = ()
        if key in MAPS and isinstance(value, dict):
            inner = [(f"{key}/{_escaped(name)}", each) for name, each in value.items()]
        elif key in LISTS and isinstance(value, list):
            inner = [(f"{key}/{number}", each) for number, each in enumerate(value)]
        elif key in ONE:
            inner = [(key, value)]
        for name, each in inner:
            yield from _schemas(f"{place}/{name}", each)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
