"""The parts of JSON schemas that take more time to compile than their bytes suggest."""

from collections.abc import Iterator
from math import prod
from typing import Any

MOST_PATTERNS = 100  # of one object: their time grows with the fourth power
MOST_COMBINATIONS = 1000  # of alternatives that hold at once


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
    every = schema.get("allOf")
    for part in [schema, *(every if isinstance(every, list) else ())]:
        for key in ("anyOf", "oneOf"):
            if isinstance(part, dict) and isinstance(part.get(key), list):
                yield max(1, len(part[key]))
