"""JSON bodies as typed requests; what does not fit is refused by name."""

from typing import TypeVar

import msgspec

from fairlead.errors import InvalidRequest

T = TypeVar("T")
SHOWN = 256  # characters of a message that shows what the body holds: it may show a name or a value of any length


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Return `body` as what `decoder` reads; raises InvalidRequest that names the field."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        message, found, place = str(error).rpartition(" - at ")
        field = place.partition("$")[2].removeprefix(".").removesuffix("`")
        raise InvalidRequest((message if found else place)[:SHOWN], field if found else "") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is no valid JSON: {error}") from None
