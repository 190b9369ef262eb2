"""The end of a JSON object or list in a text that is still arriving."""

import re

_IN_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_IN_VALUE = re.compile(r"[\s,:+\-.0-9A-Za-z]*")  # what stands in JSON between strings and brackets
_CLOSING = {"{": "}", "[": "]"}


class Brackets:
    """Finds the end of a JSON object or list, of which `closing` are the brackets that are still to come."""

    def __init__(self, closing: str = "") -> None:
        self._closing = list(closing)
        self.is_in_string = False  # where what was read ends

    def read(self, text: str) -> tuple[int, bool]:
        """Return how many characters of `text` belong to the object, and whether it ends with them."""
        at = 0
        while True:
            matched = (_IN_STRING if self.is_in_string else _IN_VALUE).match(text, at)
            at = matched.end() if matched else at
            if at == len(text) or (text[at] == "\\" and self.is_in_string):  # half of an escape
                return at, False
            if not self._accepts(text[at]):
                return at, True
            at += 1
            if not self._closing:
                return at, True

    def _accepts(self, mark: str) -> bool:
        """Follow a quotation mark or a bracket; return whether it may stand here."""
        if mark == '"':
            self.is_in_string = not self.is_in_string
            return True
        if mark in _CLOSING:
            self._closing.append(_CLOSING[mark])
            return True
        return bool(self._closing) and mark == self._closing.pop()
