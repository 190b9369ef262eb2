"""JSON bodies as typed requests; what does not fit is refused by name."""

import re
from typing import TypeVar

import msgspec

from fairlead.errors import InvalidRequest

T = TypeVar("T")
_PLACE = re.compile(r" - at (?:`key` in )?`(?:key in )?\$\.?(.*)`$")


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return `body` as what `decoder` reads; raises InvalidRequest that names the field."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        message = str(error)
        place = _PLACE.search(message)
        raise InvalidRequest(_PLACE.sub("", message), place[1] if place else "") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is no valid JSON: {error}") from None
