"""Schemas of exactly the values that are not valid under another one, as far as llguidance's keywords can say it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from local_worker.json_schemas.disjointness import TYPES
from local_worker.json_schemas.patterns import other_than
from local_worker.json_schemas.rewriting import NOTES, resolved

MOST_CHARACTERS = 300  # of texts that a value must not be: their pattern grows with the square
MOST_STEPS = 2000  # schemas that are looked at: each may become a part of what is compiled
MOST_REFERENCES = 8  # that are followed one after the other
SILENT = NOTES | {"$defs", "definitions", "$schema", "$id", "$anchor"}
# Keyword: the type that it is about, the keyword of the opposite, and what is added to the limit.
LIMITS: Mapping[str, tuple[str, str, int]] = {
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minimum": ("number", "exclusiveMaximum", 0),
    "maximum": ("number", "exclusiveMinimum", 0),
    "exclusiveMinimum": ("number", "maximum", 0),
    "exclusiveMaximum": ("number", "minimum", 0),
}


class Inexpressible(Exception):
    """No schema of llguidance's keywords is known to describe the values."""


def any_of(schemas: list[Any]) -> Any:
    """Return the schema of values that are valid under one of `schemas` at least."""
    left = [schema for schema in schemas if schema is not False]
    if any(schema in (True, {}) for schema in left):
        return True
    return (left[0] if len(left) == 1 else {"anyOf": left}) if left else False


def all_of(schemas: list[Any]) -> Any:
    """Return the schema of values that are valid under all of `schemas`."""
    left = [schema for schema in schemas if schema not in (True, {})]
    if any(schema is False for schema in left):
        return False
    return (left[0] if len(left) == 1 else {"allOf": left}) if left else True


def lacks(name: str) -> dict[str, Any]:
    """Return the schema of values that are no objects with a property of this name."""
    return {"properties": {name: False}}


class Opposites:
    """The opposites of schemas within `root`, which all together take at most MOST_STEPS."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._steps = MOST_STEPS

    def of(self, schema: Any, references: int = 0) -> Any:
        """Return the schema of the values that are not valid under `schema`; raise Inexpressible."""
        if isinstance(schema, bool):
            return not schema
        self._steps -= 1
        if not isinstance(schema, dict) or self._steps < 0:
            raise Inexpressible
        return any_of([self._of(key, value, references) for key, value in schema.items() if key not in SILENT])

    def _of(self, key: str, value: Any, references: int) -> Any:
        opposite = partial(self.of, references=references)
        match key, value:
            case "not", _:
                return value
            case "allOf", list():
                return any_of(list(map(opposite, value)))
            case "anyOf", list():
                return all_of(list(map(opposite, value)))
            case "required", list():
                return any_of([{"type": "object", **lacks(name)} for name in value if isinstance(name, str)])
            case "properties", dict():
                return any_of([_has(name, opposite(each)) for name, each in value.items()])
            case "type", str() | list():
                return _of_other_types([value] if isinstance(value, str) else value)
            case "const", _:
                return _none_of([value])
            case "enum", list():
                return _none_of(value)
            case "$ref", str() if references < MOST_REFERENCES:
                found = resolved({key: value}, self.root)
                if found != {key: value}:
                    return self.of(found, references + 1)
            case _, int() | float() if key in LIMITS and not isinstance(value, bool):
                return _beyond(value, *LIMITS[key])
        raise Inexpressible


def _has(name: str, schema: Any) -> Any:
    """Return the schema of objects with a property of this name, which is valid under `schema`."""
    return schema and {"type": "object", "required": [name], "properties": {name: schema}}


def _beyond(limit: float, about: str, opposite: str, step: int) -> Any:
    """Return the schema of values of the type `about` beyond a limit; sizes are no less than zero."""
    return {"type": about, opposite: limit + step} if about == "number" or limit + step >= 0 else False


def _of_other_types(types: list[Any]) -> Any:
    if "integer" in types and "number" not in types:  # other numbers are no type
        raise Inexpressible
    others = [each for each in TYPES if each not in types]
    return {"type": others} if others else False


def _none_of(values: list[Any]) -> Any:
    """Return the schema of values that are none of these."""
    texts = [value for value in values if isinstance(value, str)]
    truths = [value for value in values if isinstance(value, bool)]
    numbered = len(texts) + len(truths) + values.count(None)
    if numbered < len(values) or sum(map(len, texts)) > MOST_CHARACTERS:
        raise Inexpressible
    parts: list[Any] = [{"enum": [truth for truth in (True, False) if truth not in truths]}] if truths else []
    parts += [{"type": "string", "pattern": other_than(texts)}] if texts else []
    is_given: Mapping[str, Callable[[], bool]] = {
        "string": lambda: bool(texts),
        "boolean": lambda: bool(truths),
        "null": lambda: None in values,
    }
    others = [each for each in TYPES if each not in is_given or not is_given[each]()]
    return any_of([part for part in parts if part != {"enum": []}] + [{"type": others}])
