"""Whether two schemas have no value in common, as far as their types, values and required properties tell."""

import json
from typing import Any

from local_worker.json_schemas.rewriting import resolved

TYPES = ("null", "boolean", "string", "number", "array", "object")
MOST_STEPS = 5000  # pairs that are compared
DEPTH = 6


class Disjointness:
    """Compares schemas within `root`; all comparisons together take at most MOST_STEPS."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = MOST_STEPS

    def holds(self, one: Any, other: Any, depth: int = DEPTH) -> bool:
        """Return whether no value is valid under both; False where that is not known."""
        one, other = resolved(one, self._root), resolved(other, self._root)
        if one is False or other is False:
            return True
        self._steps -= 1
        if not (isinstance(one, dict) and isinstance(other, dict)) or not depth or self._steps < 0:
            return False
        return (
            not _types(one) & _types(other)
            or _differ(one, other)
            or self._parts_are(one, other, depth - 1)
            or self._parts_are(other, one, depth - 1)
            or self._properties_are(one, other, depth - 1)
            or self._properties_are(other, one, depth - 1)
        )

    def _parts_are(self, one: dict[str, Any], other: dict[str, Any], depth: int) -> bool:
        for key in ("anyOf", "oneOf"):
            if (parts := _listed(one, key)) and all(self.holds(part, other, depth) for part in parts):
                return True
        return any(self.holds(part, other, depth) for part in _listed(one, "allOf"))

    def _properties_are(self, one: dict[str, Any], other: dict[str, Any], depth: int) -> bool:
        """Return whether both are objects, and a property that `one` requires is none that `other` allows."""
        if _types(one) & _types(other) != {"object"}:
            return False
        mine, others = _properties(one), _properties(other)
        is_closed = other.get("additionalProperties") is False and not other.get("patternProperties")
        return any(
            self.holds(mine.get(name, True), others[name], depth) if name in others else is_closed
            for name in _listed(one, "required")
            if isinstance(name, str)
        )


def _types(schema: dict[str, Any]) -> set[str]:
    """Return the types of valid values; integers are numbers."""
    given = schema.get("type", TYPES)
    named = [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else TYPES
    found = {"number" if each == "integer" else str(each) for each in named}
    values = _values(schema)
    return found if values is None else found & {_type(value) for value in values}


def _type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
    return "array" if isinstance(value, list) else "object"


def _differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether both list their values, and have none in common."""
    mine, others = _values(one), _values(other)
    return mine is not None and others is not None and not set(map(_written, mine)) & set(map(_written, others))


def _values(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return schema["enum"] if isinstance(schema.get("enum"), list) else None


def _written(value: Any) -> str:
    """Return a text that is the same for equal values: 1 and 1.0 are equal."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True) if not isinstance(value, list | dict) else _type(value)


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _listed(schema: dict[str, Any], key: str) -> list[Any]:
    found = schema.get(key)
    return found if isinstance(found, list) else []
