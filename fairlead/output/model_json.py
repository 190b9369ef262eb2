"""JSON that a model has written, or nearly so.

Models copy Python's notation from templates that write it, and break lines or write `\\d` within strings.
"""

import json
import math
import re
from typing import Any

_HALF = re.compile("[\ud800-\udfff]")
# A quotation mark, an escape, a control character; outside of strings a word of Python, a comma before a bracket.
_MARK = re.compile(r"""["']|\\.|[\x00-\x1f]|True|False|None|,(?=\s{0,32}[}\]])""", re.DOTALL)
_WORDS = {"True": "true", "False": "false", "None": "null", ",": ""}
_ESCAPED = frozenset('"\\/bfnrtu')  # what JSON has after a backslash


def read_json(text: str) -> Any:
    r"""Return the value of `text`, with U+FFFD for each half of a surrogate pair without the other, such as `\ud83d`.

    UTF-8 has no such character, so no message could carry it. Raise ValueError if `text` is not even nearly JSON, and
    RecursionError if it is nested too deeply.
    """
    try:
        value = _value(text)
    except ValueError:
        value = _value(JsonWriter().written(text))
    if "\\u" not in text and "\\x" not in text:
        return value
    return json.loads(_HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False)))


def _value(text: str) -> Any:
    return json.loads(text, parse_float=_finite, parse_constant=_finite)


def _finite(text: str) -> float:
    """Return the number, which JSON can have; raises ValueError for NaN, an infinity and what is as large."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is no number of JSON")
    return number


class JsonWriter:
    """Writes as JSON what is nearly so and arrives in pieces, none of which ends within an escape or another mark.

    Strings may have Python's marks, lines, and backslashes that begin no escape; there may be words of Python, and a
    comma too many.
    """

    def __init__(self) -> None:
        self._quote = ""  # of the string in which what was written ends

    def written(self, text: str) -> str:
        """Return the next piece; JSON stays as it is."""
        return _MARK.sub(self._replaced, text)

    def _replaced(self, found: re.Match[str]) -> str:
        mark = found[0]
        if mark in ('"', "'"):
            return self._quotation(mark)
        if not self._quote:
            return _WORDS.get(mark, mark)
        if mark[0] == "\\":
            return self._escape(mark[1])
        return _escaped(mark) if mark < " " else mark

    def _quotation(self, mark: str) -> str:
        if self._quote not in ("", mark):  # the other mark, within a string
            return _escaped(mark)
        self._quote = "" if self._quote else mark
        return '"'

    def _escape(self, letter: str) -> str:
        if letter in _ESCAPED:
            return f"\\{letter}"
        if letter == "'":
            return letter
        if letter == "x" and self._quote == "'":  # two digits follow
            return "\\u00"
        return f"\\\\{_escaped(letter)}"


def _escaped(letter: str) -> str:
    return json.dumps(letter, ensure_ascii=False)[1:-1]
