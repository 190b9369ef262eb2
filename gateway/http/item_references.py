"""Items of stored responses that an input names by their ids: so programs continue what they were told is stored."""

import re
from collections.abc import Callable, Sequence

import msgspec

from fairlead.errors import InvalidRequest
from gateway.core.response_store import StoredResponse
from gateway.http.input_item import REFERENCE, InputItem
from serving.rpc.channel import MAX_REQUEST_BYTES

SHOWN = 64  # characters of an unknown id that an error message shows
_ID = re.compile(r"[a-z]+_([0-9a-f]{16})(?:_[0-9]{1,8})?")  # of an item: the id of its response is in it
Find = Callable[[str], StoredResponse | None]  # by the id of a response


class _Stored(msgspec.Struct):
    output: list[InputItem]


_STORED = msgspec.json.Decoder(_Stored)


def resolved(items: Sequence[InputItem], find: Find) -> list[InputItem]:
    """Return `items` with the items that `find` knows in place of references to them.

    Raises InvalidRequest for an item that is not stored, and for items that are larger together than a request may be.
    """
    known: dict[str, dict[str | None, InputItem]] = {}
    size = 0  # bytes that are read, and of the items that are put in
    whole = []
    for index, item in enumerate(items):
        if item.kind == REFERENCE:
            named, place = _response_of(item.id or ""), f"input[{index}].id"
            if named not in known:
                stored = find(named)
                body = b'{"output":[]}' if stored is None else stored.body
                size = _added(size, len(body), place)
                known[named] = {each.id: each for each in _STORED.decode(body).output}
            if item.id not in known[named]:
                raise InvalidRequest(f"Item with id {(item.id or '')[:SHOWN]!r} not found.", place)
            item = known[named][item.id]
            size = _added(size, len(msgspec.json.encode(item)), place)
        whole.append(item)
    return whole


def _response_of(item_id: str) -> str:
    found = _ID.fullmatch(item_id)
    return f"resp_{found[1]}" if found else ""


def _added(size: int, more: int, place: str) -> int:
    size += more
    if size > MAX_REQUEST_BYTES:
        raise InvalidRequest(f"items that are referred to have at most {MAX_REQUEST_BYTES} bytes, got {size}", place)
    return size
