"""Conversations: items that a client and its responses add to, each of which can be read and deleted."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gateway.core.response_store import OVERHEAD

ITEM_OVERHEAD = 256  # bytes that are counted for each item beside its texts: more than the records about it take


@dataclass(frozen=True, slots=True)
class StoredItem:
    """One item of a conversation; `body` is the JSON that clients get, and `characters` those of its texts."""

    id: str
    body: bytes
    characters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConversation:
    """A conversation as it is at one time; implements StoredEntry. The oldest item comes first."""

    id: str
    client: str
    created: int  # seconds since the epoch
    metadata: bytes  # JSON, as the client chose it
    items: tuple[StoredItem, ...] = ()

    @property
    def size(self) -> int:
        """Count the bytes that it takes, at most."""
        return OVERHEAD + len(self.metadata) + len(self.items) * ITEM_OVERHEAD + self.length

    @property
    def length(self) -> int:
        """Count the bytes of its items as JSON."""
        return sum(len(item.body) for item in self.items)

    @property
    def characters(self) -> int:
        """Count the characters of its items' texts."""
        return sum(item.characters for item in self.items)

    def extended(self, items: Iterable[StoredItem]) -> "StoredConversation":
        """Return the conversation with `items` after its own."""
        return replace(self, items=(*self.items, *items))

    def find(self, item_id: str) -> int | None:
        """Return the place of an item, counted from 0, or None if the conversation does not have it."""
        return next((place for place, item in enumerate(self.items) if item.id == item_id), None)

    def without(self, place: int) -> "StoredConversation":
        """Return the conversation without the item at `place`."""
        return replace(self, items=self.items[:place] + self.items[place + 1 :])
