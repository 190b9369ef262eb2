"""Readers for fields of JSON objects from other programs. A ValueError names the field and the unexpected value."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

Fields = Mapping[str, Any]
SHOWN = 60  # characters of a value in an error message


def shown(value: object) -> str:
    """Return the repr of `value`, cut to SHOWN characters."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def as_object(value: object, name: str) -> Fields:
    """Return `value` as an object; raises ValueError when it is not one."""
    if not isinstance(value, dict):
        raise ValueError(f"{name}: {shown(value)} is no object")
    return value


def as_list(value: object, name: str) -> list[Any]:
    """Return `value` as a list; raises ValueError when it is not one."""
    if not isinstance(value, list):
        raise ValueError(f"{name}: {shown(value)} is no list")
    return value


def part(fields: Fields, name: str) -> Fields:
    """Return the object in the field `name`, or an empty object when the field is missing or null."""
    value = fields.get(name)
    return {} if value is None else as_object(value, name)


def parts(fields: Fields, name: str) -> list[Fields]:
    """Return the list of objects in the field `name`, or an empty list when the field is missing or null."""
    values = fields.get(name)
    return [] if values is None else [as_object(value, name) for value in as_list(values, name)]


def required(fields: Fields, name: str) -> object:
    """Return the value of the field `name`; raises ValueError when it is missing or null."""
    if fields.get(name) is None:
        raise ValueError(f"{name} is missing")
    return fields[name]


def number(value: object, name: str) -> float:
    """Return `value` as a number; raises ValueError when it is not finite or is below 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name}: {shown(value)} is not a number")
    if not 0 <= value < math.inf:
        raise ValueError(f"{name}: {value} is below 0 or not finite")
    return value


def whole(value: object, name: str, least: int, most: int) -> int:
    """Return `value`, which may be written as 1.0, as an integer; raises ValueError unless from `least` to `most`."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}: {shown(value)} is not a whole number")
    if not least <= value <= most:
        raise ValueError(f"{name}: {value} is not from {least} to {most}")
    return value


def first_of(names: Iterable[str], *objects: Fields) -> tuple[str, Any]:
    """Return name and value of the first of these fields that has a value, or ("", None) when none has one."""
    found = ((name, fields[name]) for fields in objects for name in names if fields.get(name) is not None)
    return next(found, ("", None))
