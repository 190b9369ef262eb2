"""Fields of JSON objects that others wrote; raises ValueError, naming field and value, for what is not as expected."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

Fields = Mapping[str, Any]
SHOWN = 60  # characters of a value


def shown(value: object) -> str:
    """Not all of a long one."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def as_object(value: object, name: str) -> Fields:
    """Raises ValueError when it is none."""
    if not isinstance(value, dict):
        raise ValueError(f"{name}: {shown(value)} is no object")
    return value


def as_list(value: object, name: str) -> list[Any]:
    """Raises ValueError when it is none."""
    if not isinstance(value, list):
        raise ValueError(f"{name}: {shown(value)} is no list")
    return value


def part(fields: Fields, name: str) -> Fields:
    """The object in a field; empty where there is none."""
    value = fields.get(name)
    return {} if value is None else as_object(value, name)


def parts(fields: Fields, name: str) -> list[Fields]:
    """The objects in a field; empty where there are none."""
    values = fields.get(name)
    return [] if values is None else [as_object(value, name) for value in as_list(values, name)]


def number(value: object, name: str) -> float:
    """A finite one, not below 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name}: {shown(value)} is not a number")
    if not 0 <= value < math.inf:
        raise ValueError(f"{name}: {value} is below 0 or not finite")
    return value


def whole(value: object, name: str, least: int, most: int) -> int:
    """A whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}: {shown(value)} is not a whole number")
    if not least <= value <= most:
        raise ValueError(f"{name}: {value} is not from {least} to {most}")
    return value


def first_of(names: Iterable[str], *objects: Fields) -> tuple[str, Any]:
    """The first of these fields that has a value, and this value; ("", None) when none has."""
    found = ((name, fields[name]) for fields in objects for name in names if fields.get(name) is not None)
    return next(found, ("", None))
