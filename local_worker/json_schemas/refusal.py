"""Why llguidance cannot compile a JSON schema: which keyword it is, where it is, and what to write instead."""

import json
import re
from collections.abc import Iterator
from functools import reduce
from typing import Any

from local_worker.json_schemas.conditions import Exclusion
from local_worker.json_schemas.negation import Opposites
from local_worker.json_schemas.patterns import rust_pattern
from local_worker.json_schemas.plain import LISTS, MAPS, ONE, is_group, plain, plain_part
from local_worker.json_schemas.rewriting import MOST_DISTINCT

MOST_PLACES = 3  # of one keyword
LONGEST_PLACE = 100  # characters
UNKNOWN = "Unimplemented keys"  # the library's words
OVERLAPPING = "Enable 'coerce_one_of' option"
NOT_HERE = re.compile(r"Resource '([^']*)' is not present in a registry")
WRONG_PATTERN = re.compile(r"regex parse error:.*error: (.*)", re.DOTALL)
IN_GRAMMAR = re.compile(r"at (\d+)\(\d+\): failed to compile JSON schema: (.*)", re.DOTALL)
OF_TOOL = re.compile(r'\\"name\\": \\"([^"\\]+)')
LISTING = re.compile(r"\n +\d+ \| ")  # the lines of the grammar around the error
SHOWN = {r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[0-9a-zA-Z_]", r"\W": "[^0-9a-zA-Z_]"}
LOOK_AROUND = "lookarounds not supported"
# What the library says clearly, and what its reader can do.
REMEDIES = {
    "are not disjoint": "write them so that no name matches both",
    "min/maxProperties only supported": "require these, or leave the limit out and check the output",
    "grammar size": "leave out parts of the schema",
    "Unsatisfiable schema": "no value is valid under it, so leave out what refers to it",
    "circular references with sibling keys": "move the keywords beside $ref into the schema that it names",
}
CASES = "use anyOf with a schema for each case"
CHECK = "leave it out and check the output"
ADVICE = {
    "uniqueItems": f"leave it out and check the output, or list at most {MOST_DISTINCT} values in an enum of items",
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


def grammar_refusal(error: str, grammar: str) -> str:
    """Return what the library's `error` about a grammar means, and of which tool its JSON schema is."""
    found = IN_GRAMMAR.match(error)
    if found is None:
        return error
    line = grammar.split("\n")[int(found[1]) - 1]
    schema, _ = json.JSONDecoder().raw_decode(line.partition("%json ")[2].lstrip())
    tool = OF_TOOL.search(line)
    where = f"the parameters of {tool[1]}" if tool else f"line {found[1]}"
    return f"{where}: {schema_refusal(LISTING.split(found[2])[0], schema)}"


def schema_refusal(error: str, schema: Any) -> str:
    """Return what the library's `error` about `schema` means to its author; without a schema no places are named."""
    parts = list(_parts("#", schema))
    if found := NOT_HERE.search(error):
        places = [place for place, part in parts if str(part.get("$ref", "")).startswith(found[1])]
        return f"$ref{_listed(places)}: {found[1]!r} is not present in the schema; copy it into $defs"
    if found := WRONG_PATTERN.search(error):
        return f"pattern{_listed(_with_pattern(error, parts))}: {found[1].strip()}; write it without"
    if LOOK_AROUND in error:
        return f"pattern{_listed(_with_pattern(error, parts))}: no look-around or word boundary; write it without"
    if OVERLAPPING in error:  # an option that no caller can set
        places = _overlapping(parts)
        reason = "a value could be valid under several of its schemas, which cannot be excluded; use anyOf"
        return f"oneOf{_listed(places)}: {reason}"
    by_key = _refused(parts)
    refused = [key for key in ADVICE if key in by_key or f'"{key}"' in error]
    if UNKNOWN not in error or not refused:
        return next((f"{error}; {remedy}" for words, remedy in REMEDIES.items() if words in error), error)
    by_advice: dict[str, list[str]] = {}
    for key in refused:
        by_advice.setdefault(ADVICE[key], []).append(f"{key}{_listed(by_key.get(key, []))}")
    return "not supported: " + "; ".join(f"{', '.join(keys)}: {advice}" for advice, keys in by_advice.items())


def _overlapping(parts: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return the places of `oneOf` whose branches may overlap."""
    root = plain(parts[0][1])
    exclusion, opposites = Exclusion(root), Opposites(root)
    places = [place for place, part in parts if "oneOf" in part]
    within = {place: plain_part(part, opposites) for place, part in parts if place in places}
    return [place for place in places if "oneOf" in exclusion.exclusive(within[place])] or places


def _refused(parts: list[tuple[str, dict[str, Any]]]) -> dict[str, list[str]]:
    """Return the places of each keyword of which no other one says the same."""
    places: dict[str, list[str]] = {}
    for place, part in parts:
        plain = plain_part(part, Opposites(parts[0][1]))
        for key in plain if isinstance(plain, dict) else ():
            if key in ADVICE and key in part:
                places.setdefault(key, []).append(place)
    return places


def _with_pattern(error: str, parts: list[tuple[str, dict[str, Any]]]) -> list[str]:
    written = [(place, pattern) for place, part in parts for pattern in _patterns(part)]
    shown = [(place, pattern) for place, pattern in written if _as_shown(pattern) in error]
    longest = max((len(pattern) for _, pattern in shown), default=0)  # the others may be parts of it
    return [place for place, pattern in shown if len(pattern) == longest]


def _as_shown(pattern: str) -> str:
    """Return a pattern as the library writes it in its errors."""
    return reduce(lambda text, each: text.replace(*each), SHOWN.items(), rust_pattern(pattern))


def _patterns(part: dict[str, Any]) -> list[str]:
    given = [part.get("pattern"), *(part.get("patternProperties") or ())]
    return [pattern for pattern in given if isinstance(pattern, str)]


def _listed(places: list[str]) -> str:
    """Return the first places of a keyword, as JSON pointers to the schemas that have it, and their number."""
    shown = [place if len(place) <= LONGEST_PLACE else f"{place[:LONGEST_PLACE]}..." for place in places[:MOST_PLACES]]
    more = len(places) - len(shown)
    return f" (at {', '.join(shown)}{f' and {more} more' if more else ''})" if shown else ""


def _parts(place: str, schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(schema, dict):
        return
    if is_group(schema):
        for name, each in schema.items():
            yield from _parts(f"{place}/{_escaped(name)}", each)
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
            yield from _parts(f"{place}/{name}", each)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
