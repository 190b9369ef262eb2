"""Requests with a value of great depth or length at any place at which their types may have one."""

import json

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.system.attacks.text_places import TextPlace, text_places
from tests.unit.gateway.http.bodies import Sent

MARK = "\N{ANCHOR}"
MARKED = json.dumps(MARK, ensure_ascii=False).encode()
DEPTHS = (1, 2, 7, 8, 9, 15, 16, 17, 30, 33, 50, 60, 90, 95, 98, 99, 100, 101, 130, 200, 500, 900, 982, 990, 1000, 1100)
SHAPES = (
    (b"[", b"1", b"]"),
    (b'{"a":', b"1", b"}"),
    (b'[{"a":', b"{}", b"}]"),
    (b'{"type":"function","name":', b'"f"', b"}"),
)
LENGTHS = (17, 65, 129, 301, 1025, 10_001, 70_000, 140_000)
UNITS = (b"[]", b"{}", b'""', b"1", b"1.5", b"null", b'{"type":"text","text":"a"}', b'{"role":"user","content":"a"}')
WORDS = (b"a", b"[", b'\\"', b"\\\\", b"\\ud800", "\u0301".encode(), b"<think>", b" ")


@st.composite
def _deep(draw: st.DrawFn) -> bytes:
    opening, inner, closing = draw(st.sampled_from(SHAPES))
    depth = draw(st.sampled_from(DEPTHS))
    return opening * depth + inner + closing * (depth - draw(st.sampled_from((0, 0, 0, 1))))


@st.composite
def _long(draw: st.DrawFn) -> bytes:
    length = draw(st.sampled_from(LENGTHS))
    match draw(st.integers(0, 2)):
        case 0:
            return b"[%s]" % b",".join([draw(st.sampled_from(UNITS))] * length)
        case 1:
            unit = draw(st.sampled_from(UNITS))
            return b"{%s}" % b",".join(b'"%d":%s' % (number, unit) for number in range(length))
        case _:
            return b'"%s"' % (draw(st.sampled_from(WORDS)) * length)


def _as_text(value: bytes) -> bytes:
    """Return JSON as a text of JSON, as arguments of calls and schemas may be."""
    return json.dumps(value.decode(), ensure_ascii=False).encode()


VALUES = _deep() | _long() | _deep().map(_as_text) | _long().map(_as_text)
PLACES: SearchStrategy[TextPlace] = st.deferred(lambda: st.sampled_from(text_places()))


def extremes() -> SearchStrategy[Sent]:
    """Posts, each with one extreme value."""
    return st.builds(
        lambda place, value: Sent("POST", place.path, place.body(MARK).replace(MARKED, value), {}), PLACES, VALUES
    )
