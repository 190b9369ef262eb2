"""JSON bodies as typed requests; what has another form, does not fit or is not obeyed is refused by name.

A text of 4 MiB holds up to a million lists, each of which takes many times the memory and the time of its bytes. They
are counted before anything is made of it.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeVar, get_args

import msgspec

from fairlead.errors import InvalidRequest
from gateway.http.errors import UnsupportedMediaType
from gateway.http.mismatch import mismatch, unread
from gateway.validation import MAX_PARTS

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


def _exponents(between: bytes) -> int:
    """Return how many numbers of JSON have an exponent, given what stands between its strings."""
    return sum(between.count(mark) for mark in (b"e", b"E")) - between.count(b"true") - between.count(b"false")


def _check(count: int, most: int, what: str, field: str) -> None:
    if count > most:
        raise InvalidRequest(f"{_subject(field)}must hold at most {most} {what}, got {count}", field)


def _subject(field: str) -> str:
    """Return what a message is about where no field stands before it."""
    return "" if field else "the body "


T = TypeVar("T")
CHARSETS = ("utf-8", "utf8", "us-ascii")
# Pairs of escapes, escaped backslashes, and then halves of pairs, which stand alone.
_ESCAPES = re.compile(rb"\\u[dD][89aAbB]..\\u[dD][c-fC-F]..|\\\\|\\u[dD][89a-fA-F]..", re.DOTALL)
HALF = 6  # bytes of a single escape
MOST_FLOATS = 10_000  # of a refused body in which 1.0 is a whole number, which takes a tenth of a microsecond for each
MOST_ESCAPES = 100_000  # of a body in which halves are looked for, which takes half a microsecond for each


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return `body` as what `decoder` reads; raises InvalidRequest that names the field, or what is too much."""
    check_shape(body)
    return decode_again(decoder, body)


def decode_again(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return a body that `decode` has accepted as what another decoder reads; raises as `decode`."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_otherwise(decoder, body)


def _read_otherwise(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return a body that `decoder` cannot read as it is, if it can be read; raises InvalidRequest."""
    try:
        return _decoded(decoder, body)
    except msgspec.ValidationError as error:
        return _converted(decoder.type, body, error)
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is no valid JSON: {error}") from None


def _converted(kind: type[T], body: bytes, refused: msgspec.ValidationError) -> T:
    """Return a body that was `refused` as a `kind` if it only has whole numbers that are written as 1.0.

    Raises InvalidRequest.
    """
    try:
        value = _decoded(_WHOLE if body.count(b".") <= MOST_FLOATS else _UNTYPED, body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # of what follows, or of a number's many digits
        raise unread(refused) from None
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        fault = mismatch(error, value, kind)
        raise fault if fault.field else InvalidRequest(f"the body: {fault.message}") from None


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


_WHOLE, _UNTYPED = msgspec.json.Decoder(float_hook=_number), msgspec.json.Decoder()


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return `body` as what `decoder` reads; U+FFFD stands for each half of a surrogate pair.

    Programs send halves where they have cut a text, and send them again with every later turn.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if not 0 < body.count(b"\\u") + body.count(rb"\\") <= MOST_ESCAPES:
            raise
        return decoder.decode(_ESCAPES.sub(_whole, body))


def _whole(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if len(escape[0]) == HALF else escape[0]


def check_supported(
    asked: msgspec.Struct, unsupported: type[msgspec.Struct], harmless: Mapping[str, tuple[Any, ...]]
) -> None:
    """Raise InvalidRequest for a parameter of `asked` that asks for something and is not obeyed, naming it.

    Those are the fields that `unsupported`, a class that `asked` inherits from, itself adds; `harmless` are their
    values that ask for nothing but what is done anyway.
    """
    for name in unsupported.__annotations__:
        value = getattr(asked, name)
        if value is not None and value not in harmless.get(name, ()):
            raise InvalidRequest("this parameter is not supported yet", name)


def check_media_type(headers: Mapping[str, str]) -> None:
    """Raise UnsupportedMediaType for a body in another form.

    A browser sends other types to any origin without asking it. A program that is no browser may leave out the type.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMediaType(f"a body must not be compressed, got {encoding[:32]!r}", "content-encoding")
    if "content-type" not in headers and "origin" not in headers and "sec-fetch-site" not in headers:
        return
    given = headers.get("content-type", "")
    kind, *parameters = given.lower().split(";")
    kind = kind.strip()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMediaType(
            f"must be application/json, got {given[:64]!r}; with curl, add -H 'content-type: application/json'",
            "content-type",
        )
    for parameter in parameters:
        name, _, value = parameter.strip().partition("=")
        if name == "charset" and value.strip('"') not in CHARSETS:
            raise UnsupportedMediaType(f"the charset of JSON is utf-8, got {value[:32]!r}", "content-type")


NOTHING = frozenset((b"null", b"false", b'""', b"[]", b"{}", b'"auto"', b'"default"'))  # values that ask for nothing
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def unknown_fields(body: bytes, known: type[msgspec.Struct], place: str = "") -> Iterator[str]:
    """Yield the fields of `body`, a JSON object, that `known` does not have, and those of the objects in it.

    Fields that ask for nothing are left out. Lists are not looked into.
    """
    inner, own = _inner(known), (*known.__struct_encode_fields__, known.__struct_config__.tag_field)
    for name, value in decode_again(_FIELDS, body).items():
        if name not in own:
            if bytes(value) not in NOTHING:
                yield f"{place}{name}"
        elif name in inner and bytes(memoryview(value)[:1]) == b"{":
            yield from unknown_fields(value, inner[name], f"{place}{name}.")


@lru_cache
def _inner(known: type[msgspec.Struct]) -> Mapping[str, type[msgspec.Struct]]:
    """Return the fields of `known` that are objects of one type each, with these types."""
    found = {field.encode_name: _structs(field.type) for field in msgspec.structs.fields(known)}
    return {name: types[0] for name, types in found.items() if len(types) == 1}


def _structs(annotation: Any) -> list[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [kind for part in get_args(annotation) if isinstance(part, type) for kind in _structs(part)]
