"""JSON bodies as typed requests; what has another form, does not fit or is not obeyed is refused by name."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from fairlead.errors import InvalidRequest
from gateway.http.errors import UnsupportedMediaType
from gateway.http.mismatch import mismatch, unread
from gateway.json_shape import check_shape

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
    kind, *parameters = (part.strip().lower() for part in given.split(";"))
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMediaType(
            f"must be application/json, got {given[:64]!r}; with curl, add -H 'content-type: application/json'",
            "content-type",
        )
    for name, _, value in (parameter.partition("=") for parameter in parameters):
        if name == "charset" and value.strip('"') not in CHARSETS:
            raise UnsupportedMediaType(f"the charset of JSON is utf-8, got {value[:32]!r}", "content-type")
