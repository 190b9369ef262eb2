"""Random JSON schemas, and a check of what is valid under them that shares nothing with the worker."""

import json
import random
from typing import Any

Schema = dict[str, Any]
WORDS = ("a", "of", "name", "x y", "-1", "")


def random_schema(dice: random.Random, depth: int = 2) -> Schema:
    """A schema whose values are all short."""
    leaves = (_integer, _number, _string, _enum, _const, _boolean)
    kinds = (*leaves, _object, _object, _array, _any_of) if depth else leaves
    return dice.choice(kinds)(dice, depth)


def is_valid(schema: Schema, value: Any) -> bool:
    """Whether `value` is valid under a schema of `random_schema`."""
    match schema:
        case {"anyOf": options}:
            return any(is_valid(option, value) for option in options)
        case {"enum": values}:
            return any(_is_equal(value, each) for each in values)
        case {"const": only}:
            return _is_equal(value, only)
        case {"type": "boolean"}:
            return isinstance(value, bool)
        case {"type": "integer", "minimum": low, "maximum": high}:
            return type(value) is int and low <= value <= high
        case {"type": "string", "maxLength": longest}:
            return isinstance(value, str) and len(value) <= longest
        case {"type": "string", "pattern": "^[a-c]{2,4}$"}:
            return isinstance(value, str) and 2 <= len(value) <= 4 and {*value} <= {*"abc"}
        case {"type": "array", "items": items, "minItems": least, "maxItems": most}:
            return isinstance(value, list) and least <= len(value) <= most and all(is_valid(items, v) for v in value)
        case {"type": "object", "properties": properties, "required": required}:
            return (
                isinstance(value, dict)
                and {*required} <= {*value} <= {*properties}
                and all(is_valid(properties[name], part) for name, part in value.items())
            )
        case _:
            raise AssertionError(f"unknown schema {schema}")


def _is_equal(value: Any, other: Any) -> bool:
    """Whether both are the same JSON: 3 and 3.0 are, 1 and true are not."""
    return value == other and json.dumps(value).isalpha() == json.dumps(other).isalpha()


def _integer(dice: random.Random, depth: int) -> Schema:
    low = dice.randrange(-200, 200)
    return {"type": "integer", "minimum": low, "maximum": low + dice.randrange(1000)}


def _number(dice: random.Random, depth: int) -> Schema:
    return {"enum": [round(dice.uniform(-9, 9), 2), dice.randrange(100)]}


def _string(dice: random.Random, depth: int) -> Schema:
    if dice.random() < 0.5:
        return {"type": "string", "pattern": "^[a-c]{2,4}$"}
    return {"type": "string", "maxLength": dice.randrange(6)}


def _enum(dice: random.Random, depth: int) -> Schema:
    return {"enum": [*dice.sample(WORDS, 2), None, dice.randrange(10)]}


def _const(dice: random.Random, depth: int) -> Schema:
    return {"const": dice.choice((*WORDS, 1, True, None, [1, "a"], {"a": None}))}


def _boolean(dice: random.Random, depth: int) -> Schema:
    return {"type": "boolean"}


def _object(dice: random.Random, depth: int) -> Schema:
    names = dice.sample(WORDS, dice.randrange(4))
    properties = {name: random_schema(dice, depth - 1) for name in names}
    required = [name for name in names if dice.random() < 0.5]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _array(dice: random.Random, depth: int) -> Schema:
    least = dice.randrange(2)
    items = random_schema(dice, depth - 1)
    return {"type": "array", "items": items, "minItems": least, "maxItems": least + dice.randrange(3)}


def _any_of(dice: random.Random, depth: int) -> Schema:
    return {"anyOf": [random_schema(dice, depth - 1) for _ in range(2)]}
