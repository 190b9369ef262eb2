"""Regular expressions that are looked for in a text which is still arriving.

Python's `re` does not tell whether a text that ends here may become a match. Of each expression a second one is
therefore made, which matches every beginning of a match that more text may complete or lengthen.
"""

import re

_ATOM = re.compile(r"\\[dDwWsSnrtfv]|\\[^\w]|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\()\[*+?|^$]", re.DOTALL)  # one character
_QUANTIFIER = re.compile(r"(?:(?:[*+?]|\{\d+,?\d*\}|\{,\d+\})[?+]?)?")
_OPENING = re.compile(r"\((?:\?:|\?P<\w+>|\?=)?")


class Pattern:
    """An expression of characters, classes, groups, alternatives, quantifiers and lookahead for what follows.

    Raise ValueError for any other, such as one with an anchor, and for one that is wrong or matches the empty text.
    """

    def __init__(self, expression: str) -> None:
        try:
            self._whole = re.compile(expression, re.DOTALL)
        except re.error as error:
            raise ValueError(f"the pattern {expression!r} is wrong: {error}") from error
        if self._whole.match(""):
            raise ValueError(f"the pattern {expression!r} matches the empty text")
        self._begun = re.compile(_Beginnings(expression).all() + r"\Z", re.DOTALL)

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match in `text`; it is certain if it begins before what `undecided` returns."""
        return self._whole.search(text)

    def match(self, text: str) -> re.Match[str] | None:
        """Return the match with which `text` begins; it is certain unless `may_begin`."""
        return self._whole.match(text)

    def undecided(self, text: str) -> int:
        """Return from where on more text after `text` may complete or lengthen a match."""
        begun = self._begun.search(text)
        return len(text) if begun is None else begun.start()

    def may_begin(self, text: str) -> bool:
        """Return whether more text after `text` may complete or lengthen a match with which it begins."""
        return self._begun.match(text) is not None


class _Beginnings:
    """The expression of all beginnings of an expression's matches, but for matches that cannot become longer."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._at = 0

    def all(self) -> str:
        return f"(?:{self._alternatives()})"

    def _alternatives(self) -> str:
        begun = [self._sequence()]
        while self._expression.startswith("|", self._at):
            self._at += 1
            begun.append(self._sequence())
        return "|".join(begun)

    def _sequence(self) -> str:
        """Return the beginnings of what follows up to the end of the sequence; they are empty at its end."""
        begin = self._at
        if self._at == len(self._expression) or self._expression[self._at] in "|)":
            return ""
        if group := _OPENING.match(self._expression, self._at):
            self._at = group.end()
            inner = self._alternatives()
            # The closing bracket: `re` has refused an expression without it.
            self._at += 1
        elif atom := _ATOM.match(self._expression, self._at):
            self._at = atom.end()
            inner = ""
        else:
            self._refuse()
        item = re.sub(r"\(\?P<\w+>", "(?:", self._expression[begin : self._at])
        quantifier = _QUANTIFIER.match(self._expression, self._at)
        times = quantifier[0] if quantifier else ""
        self._at += len(times)
        rest = self._sequence()
        if times.startswith(("*", "+", "{")):
            return f"(?:{item})*(?:{inner}|{rest})"
        optional = "?" if times.startswith("?") else ""
        return f"(?:{inner}|(?:{item}){optional}(?:{rest}))" if rest else f"(?:{inner})"

    def _refuse(self) -> None:
        rest = self._expression[self._at :]
        raise ValueError(f"the pattern {self._expression!r} cannot be looked for in a text that arrives: {rest!r}")
