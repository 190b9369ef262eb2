"""What a JSON text becomes is counted without making it; a naive model makes it and counts."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.errors import InvalidRequest
from gateway.http import decoding
from gateway.http.decoding import MAX_DEPTH, MAX_ELEMENTS, MAX_EXPONENTS, check_shape
from gateway.validation import MAX_PARTS, parts

WORDS = st.text(st.sampled_from('a\\"[]{},:\n\u00e9'), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=30,
)


def parts_of(value: Any) -> int:
    """Return the strings, lists and objects of `value`."""
    match value:
        case str():
            return 1
        case list():
            return 1 + sum(map(parts_of, value))
        case dict():
            return 1 + sum(1 + parts_of(inner) for inner in value.values())
        case _:
            return 0


def elements_of(value: Any) -> int:
    """Return the commas between the elements of `value` and of all in it."""
    inner = value if isinstance(value, list) else [*value.values()] if isinstance(value, dict) else []
    return max(0, len(inner) - 1) + sum(map(elements_of, inner))


def exponents_of(value: Any) -> int:
    """Return the numbers of `value` that are written with an exponent."""
    if isinstance(value, float):
        return int("e" in repr(value))
    inner = value if isinstance(value, list) else [*value.values()] if isinstance(value, dict) else []
    return sum(map(exponents_of, inner))


def depth(value: Any) -> int:
    """Return how many lists and objects of `value` are within each other."""
    match value:
        case list():
            return 1 + max(map(depth, value), default=0)
        case dict():
            return 1 + max(map(depth, value.values()), default=0)
        case _:
            return 0


@given(VALUES, st.booleans(), st.integers(0, 40))
def test_the_number_of_parts(value: Any, escaped: bool, most: int) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode()
    assert parts(text.decode()) == parts_of(value) + elements_of(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "MAX_PARTS", most)
        if parts_of(value) <= most:
            check_shape(text)
        else:
            with pytest.raises(InvalidRequest, match=f"at most {most} strings, lists and objects"):
                check_shape(text, depth=0)


@given(VALUES, st.integers(0, 4))
@example(1e16, 0)
def test_the_number_of_exponents(value: Any, most: int) -> None:
    text = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "MAX_EXPONENTS", most)
        if exponents_of(value) <= most:
            check_shape(text)
        else:
            with pytest.raises(InvalidRequest, match=f"at most {most} numbers with an exponent"):
                check_shape(text)


@given(VALUES, st.booleans(), st.integers(0, 4))
def test_the_depth(value: Any, escaped: bool, most: int) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode()
    if depth(value) <= most:
        check_shape(text, depth=most)
    else:
        with pytest.raises(InvalidRequest, match=f"to a depth of {depth(value)}, at most {most}"):
            check_shape(text, depth=most)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"[" + b"[]," * MAX_PARTS + b"0]", f"got {MAX_PARTS + 1}"),
        (b'["' + b'","' * MAX_PARTS + b'"]', f"got {MAX_PARTS + 1}"),
        (b'"' * 4_000_000, "got 2000000"),
        (b"[" + b"7," * MAX_ELEMENTS + b"7]", f"at most {MAX_ELEMENTS} elements .*, got {MAX_ELEMENTS + 1}"),
        (b"[" + b"5E-324," * MAX_EXPONENTS + b"1e1]", f"at most {MAX_EXPONENTS} .* exponent, got {MAX_EXPONENTS + 1}"),
        (b"[" * 50_000 + b"]" * 50_000, f"a depth of 50000, at most {MAX_DEPTH}"),
    ],
)
def test_texts_that_become_too_much(text: bytes, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"^field: .*{problem}"):
        check_shape(text, "field")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"x",
        b'"',
        b'"\\',
        b'{"a": "' + b'[{,\\"' * 500_000 + b'"}',
        b"7," * (MAX_ELEMENTS - 1),
        b"true,false," * MAX_EXPONENTS,
        b'"' + b"5e-324," * 100_000 + b'"',
        b'"' + b"," * 2_000_000 + b'"',
    ],
)
def test_texts_that_become_little(text: bytes) -> None:
    check_shape(text)
