"""Pages of a conversation's items, as OpenAI's API lists them."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qs

import msgspec

from fairlead.errors import InvalidRequest
from gateway.core.stored_conversation import StoredConversation, StoredItem

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
ORDERS = ("asc", "desc")
SHOWN = 64  # characters of a wrong value that an error message shows


class ItemPage(NamedTuple):
    """One page of a conversation's items: at most `limit` of those behind the item `after`, in `order`."""

    after: str  # empty: from the beginning
    limit: int
    order: str

    @classmethod
    def asked_by(cls, query: str) -> "ItemPage":
        """Return the page that the query of a request asks for; raises InvalidRequest. Unknown fields are ignored."""
        fields = {name: values[-1] for name, values in parse_qs(query).items()}
        limit = fields.get("limit", str(DEFAULT_LIMIT))
        if not (limit.isascii() and limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= MAX_LIMIT):
            raise InvalidRequest(f"must be a whole number from 1 to {MAX_LIMIT}, got {limit[:SHOWN]!r}", "limit")
        order = fields.get("order", "desc")
        if order not in ORDERS:
            raise InvalidRequest(f"must be one of {', '.join(ORDERS)}, got {order[:SHOWN]!r}", "order")
        return cls(fields.get("after", ""), int(limit), order)

    def of(self, conversation: StoredConversation) -> bytes:
        """Return the page as JSON; raises InvalidRequest if the conversation has no item `after`."""
        items = conversation.items if self.order == "asc" else conversation.items[::-1]
        if self.after:
            place = conversation.find(self.after)
            if place is None:
                raise InvalidRequest(f"the conversation has no item {self.after[:SHOWN]!r}", "after")
            items = items[(place if self.order == "asc" else len(items) - 1 - place) + 1 :]
        return listed(items[: self.limit], has_more=len(items) > self.limit)


def listed(items: Sequence[StoredItem], *, has_more: bool) -> bytes:
    """Return `items` as the JSON of a list, which has no first and no last id if it is empty."""
    return msgspec.json.encode(
        {
            "object": "list",
            "data": [msgspec.Raw(item.body) for item in items],
            "first_id": items[0].id if items else None,
            "last_id": items[-1].id if items else None,
            "has_more": has_more,
        }
    )
