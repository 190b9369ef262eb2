"""What in a body has not the form that it needs: the field, what it may be, and what it is."""

import re
from typing import Any

import msgspec

from fairlead.errors import InvalidRequest
from gateway.http.allowed_values import allowed_values

SHOWN = 256  # characters of a message that shows what the body holds: it may show a name or a value of any length
MOST_VALUE = 64  # characters of a value that is shown
_STEPS = re.compile(r"\.(\w+)|\[(\d+)\]")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_INVALID = re.compile("Invalid (enum )?value")
_GOT = re.compile(r", got `\w+`$|(?<=alue) .+$")  # the type of a value, or a value that is shown by itself


def unread(error: msgspec.ValidationError) -> InvalidRequest:
    """Return what `error` says of a body that cannot be read at all; a field that is missing is named itself."""
    told, found, place = str(error).rpartition(" - at ")
    message, path = (told, place.partition("$")[2].removesuffix("`")) if found else (place, "")
    field = path.removeprefix(".").partition("[...]")[0]
    if missing := _MISSING.fullmatch(message):
        field = f"{field}.{missing[1]}" if field else missing[1]
    return InvalidRequest(message[:SHOWN], field)


def mismatch(error: msgspec.ValidationError, body: Any, kind: Any) -> InvalidRequest:
    """Return what `error` says of `body`, which is no `kind`, with the value that is wrong, and those that are right
    where they are a few.

    A value within an object is shown with the object; a field that is missing is named itself.
    """
    fault = unread(error)
    message = fault.message.removeprefix(f"{fault.field}: ")
    if _MISSING.fullmatch(message):
        return fault
    if _INVALID.match(message) and (values := allowed_values(kind, _names(fault.field))):
        message = f"must be one of {', '.join(map(_shown, values))}"
    value = _shown(_value_at(body, fault.field))
    shown = value if len(value) <= MOST_VALUE else f"{value[:MOST_VALUE]}..."
    return InvalidRequest(f"{_GOT.sub('', message)}, got {shown}", fault.field)


def within(fault: InvalidRequest, place: str) -> InvalidRequest:
    """Return `fault` of a value that stands at `place` of the body."""
    return InvalidRequest(fault.message.removeprefix(f"{fault.field}: "), f"{place}{_joined(fault.field)}")


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _names(field: str) -> tuple[str, ...]:
    """Return the names that lead to `field`; that of an element of a list is empty."""
    return tuple(name for name, _ in _STEPS.findall(f".{field}" if field else ""))


def _joined(field: str) -> str:
    return field if field.startswith("[") or not field else f".{field}"


def _value_at(body: Any, field: str) -> Any:
    """Return the value of `field`, which leads through objects and lists, as far as it is there."""
    for name, index in _STEPS.findall(f".{field}" if field else ""):
        try:
            body = body[name or int(index)]
        except (KeyError, IndexError, TypeError):
            break
    return body
