"""JSON bodies as typed requests; what does not fit is refused by name."""

import re
from typing import TypeVar

import msgspec

from fairlead.errors import InvalidRequest
from gateway.json_shape import check_shape

T = TypeVar("T")
# Pairs of escapes, escaped backslashes, and then halves of pairs, which stand alone.
_ESCAPES = re.compile(rb"\\u[dD][89aAbB]..\\u[dD][c-fC-F]..|\\\\|\\u[dD][89a-fA-F]..", re.DOTALL)
HALF = 6  # bytes of a single escape
MOST_ESCAPES = 100_000  # of a body in which halves are looked for, which takes half a microsecond for each
SHOWN = 256  # characters of a message that shows what the body holds: it may show a name or a value of any length


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return `body` as what `decoder` reads; raises InvalidRequest that names the field, or what is too much."""
    check_shape(body)
    return decode_again(decoder, body)


def decode_again(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return a body that `decode` has accepted as what another decoder reads; raises as `decode`."""
    try:
        return _decoded(decoder, body)
    except msgspec.ValidationError as error:
        message, found, place = str(error).rpartition(" - at ")
        field = place.partition("$")[2].removeprefix(".").removesuffix("`")
        raise InvalidRequest((message if found else place)[:SHOWN], field if found else "") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is no valid JSON: {error}") from None


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
