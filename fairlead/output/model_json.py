"""JSON that a model has written."""

import ast
import json
import math
import re
import warnings
from typing import Any

MOST_PYTHON = 8_192  # characters of a literal of Python, which takes many times longer to read than JSON
_HALF = re.compile("[\ud800-\udfff]")


def read_json(text: str) -> Any:
    r"""Return the value of `text`, with U+FFFD for each half of a surrogate pair without the other, such as `\ud83d`.

    UTF-8 has no such character, so no message could carry it. Python's notation will do, too, which models copy from
    templates that write `True` and `None`. Raise ValueError if `text` is neither, and RecursionError if it is nested
    too deeply.
    """
    try:
        value = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except ValueError:
        return _read_python(text)
    if "\\u" not in text:
        return value
    return json.loads(_HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False)))


def _finite(text: str) -> float:
    """Return the number, which JSON can have; raises ValueError for NaN, an infinity and what is as large."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is no number of JSON")
    return number


def _read_python(text: str) -> Any:
    """Return the value of a short literal of Python that JSON can have; raises ValueError."""
    if len(text) > MOST_PYTHON:
        raise ValueError("neither JSON nor short")
    try:
        with warnings.catch_warnings(action="ignore"):
            value = ast.literal_eval(text.strip())
        return json.loads(_HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False, allow_nan=False)))
    except (SyntaxError, TypeError, MemoryError) as error:
        raise ValueError("neither JSON nor a literal of Python") from error
