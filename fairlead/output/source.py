"""The text from which a grammar reads, and what all grammars read alike.

A grammar is a generator. It yields the parts that it has read, and None when it needs more text to go on. What it does
depends on the text alone, and not on how the text was cut when it arrived.
"""

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar

from fairlead.output.events import AnswerText, Part, Reasoning
from fairlead.output.pattern import Pattern

T = TypeVar("T")
Grammar = Generator[Part | None, None, T]
MOST_HEAD = 512  # characters before a call's arguments, which bound what is held back
MOST_SPACE = 32  # characters of white space before a marker that belong to it, and are held back until it is known


class Source:
    """The text of one output that has arrived and is not read yet."""

    def __init__(self) -> None:
        self.held = ""
        self.is_ended = False  # no further text will arrive

    def take(self, count: int) -> str:
        """Remove and return the first `count` characters."""
        taken, self.held = self.held[:count], self.held[count:]
        return taken


class Region:
    """The text up to the first match of one of `ends`, read in pieces.

    Once a match has been read, it is `ending`, and `which` is the number of its pattern. Of matches that begin together
    the longest one counts, and of those the one of the first pattern.
    """

    def __init__(self, source: Source, *ends: Pattern) -> None:
        self._source = source
        self._ends = ends
        self.ending: re.Match[str] | None = None
        self.which = 0

    def __iter__(self) -> Iterator[str | None]:
        """Yield pieces of the text, and None for more; end after the match, or with the output."""
        source = self._source
        while True:
            certain = len(source.held)
            if not source.is_ended:
                certain = min((end.undecided(source.held) for end in self._ends), default=certain)
                if len(source.held) - certain > 2 * MOST_HEAD:  # a longer match has begun too long ago to count
                    certain = len(source.held) - MOST_HEAD
            if found := self._first(source.held, certain):
                certain, _, self.which, self.ending = found
            if certain:
                yield source.take(certain)
            if self.ending is not None:
                source.take(len(self.ending[0]))
                return
            if source.is_ended:
                return
            yield None

    def _first(self, text: str, certain: int) -> tuple[int, int, int, re.Match[str]] | None:
        """Return the first match before `certain`, after its place, negative length and number of its pattern."""
        if not certain:
            return None
        matches = ((end.search(text), number) for number, end in enumerate(self._ends))
        found = [(each.start(), -len(each[0]), number, each) for each, number in matches if each is not None]
        return min((each for each in found if each[0] < certain), default=None, key=lambda each: each[:3])


def plain_text(source: Source) -> Grammar[None]:
    """Read everything as text."""
    while True:
        if source.held:
            yield AnswerText(source.take(len(source.held)))
        if source.is_ended:
            return
        yield None


def text_before(
    source: Source, *markers: str, kind: Callable[[str], AnswerText | Reasoning] = AnswerText
) -> Grammar[str]:
    """Read text, as parts of `kind`, up to the first of `markers` and the white space before it.

    Return this white space with the marker; the empty string means that the output has ended without a marker.
    """
    while not (found := _first(source.held, markers)) and not source.is_ended:
        begun = max(_begun(source.held, marker) for marker in markers)
        if cut := _before_space(source.held, len(source.held) - begun):
            yield kind(source.take(cut))
        yield None
    place, marker = found or (len(source.held), "")
    cut = _before_space(source.held, place) if found else place
    if cut:
        yield kind(source.take(cut))
    return source.take(place - cut + len(marker)) if found else ""


def _first(text: str, markers: Sequence[str]) -> tuple[int, str] | None:
    """Return the place of the first of `markers` in `text`, and the marker."""
    return min(((text.find(marker), marker) for marker in markers if marker in text), default=None)


def expect(source: Source, pattern: Pattern) -> Grammar[re.Match[str] | None]:
    """Read what matches `pattern` and return the match; read nothing and return None if the text goes on otherwise."""
    while not source.is_ended and len(source.held) < MOST_HEAD and pattern.may_begin(source.held):
        yield None
    matched = pattern.match(source.held[:MOST_HEAD])
    if matched is not None:
        source.take(matched.end())
    return matched


def skip(source: Source, marker: str) -> Grammar[None]:
    """Skip `marker` if the text goes on with it."""
    while not source.held.startswith(marker):
        if source.is_ended or not marker.startswith(source.held):
            return
        yield None
    source.take(len(marker))


def skip_space(source: Source) -> Grammar[str]:
    """Skip white space and return the next character, or the empty string at the end of the output."""
    while True:
        source.held = source.held.lstrip()
        if source.held or source.is_ended:
            return source.held[:1]
        yield None


def _begun(text: str, marker: str) -> int:
    """Return the length of the longest end of `text` with which `marker` begins."""
    return next((size for size in range(len(marker) - 1, 0, -1) if text.endswith(marker[:size])), 0)


def _before_space(text: str, end: int) -> int:
    """Return where the white space begins that stands directly before `end`, of which `MOST_SPACE` count."""
    return max(len(text[:end].rstrip()), end - MOST_SPACE)
