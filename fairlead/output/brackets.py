"""The end of a JSON object or list in a text that is still arriving."""

import re

_IN_STRING = {
    '"': re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL),
    "'": re.compile(r"[^'\\]*(?:\\.[^'\\]*)*", re.DOTALL),
}
_IN_VALUE = re.compile(r"[\s,:+\-.0-9A-Za-z]*")  # what stands in JSON between strings and brackets
_CLOSING = {"{": "}", "[": "]"}
_BEFORE_STRING = ("{", "[", ",", ":")


class Brackets:
    """Finds the end of a JSON object or list, of which `closing` are the brackets that are still to come.

    Where a string may begin, it may also begin with Python's mark.
    """

    def __init__(self, closing: str = "") -> None:
        self._closing = list(closing)
        self._quote = ""  # of the string in which what was read ends
        self._last = ""  # the last character that was read, but for white space

    @property
    def is_in_string(self) -> bool:
        """Whether what was read ends in a string."""
        return bool(self._quote)

    def read(self, text: str) -> tuple[int, bool]:
        """Return how many characters of `text` belong to the object, and whether it ends with them."""
        at = 0
        while True:
            matched = (_IN_STRING[self._quote] if self._quote else _IN_VALUE).match(text, at)
            at = matched.end() if matched else at
            if matched:
                self._last = matched[0].rstrip()[-1:] or self._last
            if at == len(text) or (text[at] == "\\" and self._quote):  # half of an escape
                return at, False
            if not self._accepts(text[at]):
                return at, True
            self._last = text[at]
            at += 1
            if not self._closing:
                return at, True

    def _accepts(self, mark: str) -> bool:
        """Follow a quotation mark or a bracket; return whether it may stand here."""
        if self._quote:
            self._quote = ""
            return True
        if mark == '"' or (mark == "'" and self._last in _BEFORE_STRING):
            self._quote = mark
            return True
        if mark in _CLOSING:
            self._closing.append(_CLOSING[mark])
            return True
        return bool(self._closing) and mark == self._closing.pop()
