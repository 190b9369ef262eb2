"""Bounds on what a JSON text becomes, which are checked before anything is made of it.

A text of 4 MiB holds up to a million lists, each of which takes many times the memory and the time of its bytes. They
are counted without making them.
"""

from itertools import accumulate

from fairlead.errors import InvalidRequest

MAX_PARTS = 2**17  # strings, lists and objects; 10,000 messages with parts of their own have 100,000
MAX_ELEMENTS = 2**19  # elements of lists and objects, of whatever kind: a prompt may be a list of token ids
MAX_EXPONENTS = 2**12  # numbers like 5e-324, of which each may take as long as 2 kB of a text to read
MAX_DEPTH = 100  # lists and objects within each other
_BRACKETS = b"[]{}"
_OTHERS = bytes(set(range(256)) - set(_BRACKETS))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def check_shape(text: bytes, field: str = "", depth: int = MAX_DEPTH) -> None:
    """Raise InvalidRequest, which names `field` or the body, if `text` holds too much or is deeper than `depth`.

    A text that is no JSON passes, or is refused for what it would hold.
    """
    opened = text.count(b"[") + text.count(b"{")
    # A text has at most one value more than brackets and commas: a number may stand alone.
    if opened <= depth and text.count(b'"') <= MAX_PARTS and opened + text.count(b",") < MAX_EXPONENTS:
        return
    # Every quotation mark that is left begins or ends a string.
    marked = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    strings = marked.count(b'"') // 2
    _check(strings, MAX_PARTS, "strings, lists and objects together", field)
    between = b"".join(marked.split(b'"')[::2])
    opened = between.count(b"[") + between.count(b"{")
    _check(strings + opened, MAX_PARTS, "strings, lists and objects together", field)
    _check(between.count(b",") + 1, MAX_ELEMENTS, "elements of lists and objects", field)
    _check(_exponents(between), MAX_EXPONENTS, "numbers with an exponent", field)
    deepest = max(accumulate(map(_STEPS.__getitem__, between.translate(None, _OTHERS))), default=0)
    if deepest > depth:
        raise InvalidRequest(f"{_subject(field)}is nested too deeply: to a depth of {deepest}, at most {depth}", field)


def parts(text: str) -> int:
    """Return the strings, lists, objects and elements of JSON, at most; those of a text that is no JSON are guessed."""
    marked = text.replace("\\\\", "").replace('\\"', "")
    between = marked.split('"')[::2] if marked.count('"') <= 2 * MAX_PARTS else [marked]
    return marked.count('"') // 2 + sum(each.count("[") + each.count("{") + each.count(",") for each in between)


def _exponents(between: bytes) -> int:
    """Return how many numbers of JSON have an exponent, given what stands between its strings."""
    return sum(between.count(mark) for mark in (b"e", b"E")) - between.count(b"true") - between.count(b"false")


def _check(count: int, most: int, what: str, field: str) -> None:
    if count > most:
        raise InvalidRequest(f"{_subject(field)}must hold at most {most} {what}, got {count}", field)


def _subject(field: str) -> str:
    """Return what a message is about where no field stands before it."""
    return "" if field else "the body "
