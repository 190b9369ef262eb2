"""Arguments that a model writes as bare texts, typed by the schema of their tool."""

import math
from collections.abc import Mapping, Sequence

from fairlead.output.model_json import read_json

ArgumentTypes = Mapping[str, Mapping[str, Sequence[str]]]  # by tool and argument, as JSON Schema names types


def typed(text: str, types: Sequence[str]) -> object:
    """Return an argument as a value of the first of `types` that `text` can be, and otherwise as the text."""
    for kind in types:
        try:
            return _typed(text, kind)
        except (ValueError, RecursionError):  # the latter of JSON that is nested too deeply
            continue
    return text


def _typed(text: str, kind: str) -> object:
    """Return the value of `text`; raise ValueError if it is none of this type."""
    match kind:
        case "integer":
            return _integer(text)
        case "number":
            return _number(text)
        case "boolean" if (word := text.strip().lower()) in ("true", "1", "false", "0"):
            return word in ("true", "1")
        case "null" if text.strip() in ("null", "None"):
            return None
        case "object" | "array" if isinstance(value := read_json(text), dict if kind == "object" else list):
            return value
    raise ValueError(f"{text!r} is no {kind}")


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)  # a whole number may be written as 3.0
        if not number.is_integer():
            raise
        return int(number)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is no number of JSON")
    return int(number) if number.is_integer() and "." not in text else number
