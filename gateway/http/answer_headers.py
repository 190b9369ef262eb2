"""Headers of an answer: what was left out of its request (docs/http.md has the rule), and how close a limit is."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, get_args

import msgspec

from gateway.http.asgi import Headers
from gateway.http.decoding import decode_again
from throttler.core.throttle import LimitStatus

NAME = b"x-fairlead-ignored"
MOST = 1024  # bytes of the header's value, but for the last mark
NOTHING = frozenset((b"null", b"false", b'""', b"[]", b"{}", b'"auto"', b'"default"'))  # values that ask for nothing
_PLAIN = re.compile(r"[\w.\[\]-]{1,64}", re.ASCII)
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


def left_out_header(fields: Iterable[str]) -> Headers:
    """Return the header that lists `fields`, none if there are none; a name that is no plain text is shown as `?`."""
    value = ""
    for field in fields:
        shown = field if _PLAIN.fullmatch(field) else "?"
        value += f", {shown}" if value else shown
        if len(value) > MOST:
            value = f"{value[:MOST].rpartition(', ')[0]}, ..."
            break
    return [(NAME, value.encode())] if value else []


@lru_cache
def _inner(known: type[msgspec.Struct]) -> Mapping[str, type[msgspec.Struct]]:
    """Return the fields of `known` that are objects of one type each, with these types."""
    found = {field.encode_name: _structs(field.type) for field in msgspec.structs.fields(known)}
    return {name: types[0] for name, types in found.items() if len(types) == 1}


def _structs(annotation: Any) -> list[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [kind for part in get_args(annotation) if isinstance(part, type) for kind in _structs(part)]


def limit_headers(unit: bytes, status: LimitStatus | None) -> Headers:
    """Return the limit in `unit` (requests or tokens), what remains of it, and the seconds until all of it does.

    There are no headers without a limit.
    """
    if status is None:
        return []
    return [
        (b"x-ratelimit-limit-" + unit, b"%d" % status.limit),
        (b"x-ratelimit-remaining-" + unit, b"%d" % status.remaining),
        (b"x-ratelimit-reset-" + unit, b"%.3fs" % status.reset),
    ]
