"""OpenAI's Conversations as they are stored: found for those who may read them, and extended."""

import time
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from typing import Any

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2, scheduler_pb2
from gateway.core.response_store import ResponseStore
from gateway.core.stored_conversation import StoredConversation, StoredItem
from gateway.counts import MAX_MESSAGES
from gateway.credentials import Credentials
from gateway.http.errors import ConversationNotFound
from gateway.http.input_item import InputItem, stored_item
from gateway.tenants import CallerIdentity
from serving.prompt_size import check_characters, check_messages
from serving.rpc.channel import MAX_REQUEST_BYTES

SHOWN = 64  # characters of an unknown id that an error message shows
# A conversation is read with each of its responses, and costs no more than a request that says the same.
MAX_ITEMS = MAX_MESSAGES
MAX_LENGTH = MAX_REQUEST_BYTES  # bytes of all items as JSON

_ITEM = msgspec.json.Decoder(InputItem)


class Conversations:
    """The conversations in `store`; `identify` returns who calls, given the user of a body and credentials."""

    def __init__(self, store: ResponseStore, identify: Callable[[str, Credentials], CallerIdentity]) -> None:
        self._store = store
        self.identify = identify

    def find(self, wanted: str, identity: CallerIdentity, field: str = "") -> StoredConversation:
        """Return a conversation that `identity` may read; others do not learn that it exists.

        Raises ConversationNotFound, which names the request's `field`.
        """
        found = self._current(wanted)
        if found is None or not identity.may_read(found.client):
            raise ConversationNotFound(f"Conversation with id {wanted[:SHOWN]!r} not found.", field)
        return found

    def keep(self, conversation: StoredConversation, field: str) -> None:
        """Store a conversation, or what has become of it.

        Raises InvalidRequest, which names the request's `field`, if there is no room for it.
        """
        if conversation.length > MAX_LENGTH:
            got = conversation.length
            raise InvalidRequest(f"the items of a conversation have at most {MAX_LENGTH} bytes, got {got}", field)
        if not self._store.add(conversation, time.monotonic()):
            raise InvalidRequest(
                f"there is no room for a conversation of {conversation.size} bytes: "
                f"at most {self._store.capacity} bytes are stored for all callers",
                field,
            )

    def extend(self, conversation_id: str, items: Iterable[StoredItem]) -> bool:
        """Append what a response adds; return False if the conversation is gone, or has no room."""
        found = self._current(conversation_id)
        if found is None:
            return False
        extended = found.extended(items)
        return extended.length <= MAX_LENGTH and self._store.add(extended, time.monotonic())

    def remove(self, conversation: StoredConversation) -> None:
        """Forget a conversation that `find` has just returned."""
        self._store.remove(conversation.id)

    def _current(self, wanted: str) -> StoredConversation | None:
        found = self._store.find(wanted, time.monotonic())
        return found if isinstance(found, StoredConversation) else None


def add_conversation(messages: MutableSequence[common_pb2.ChatMessage], conversation: StoredConversation) -> None:
    """Append what `conversation` says to `messages`; raises InvalidRequest, which names an item that cannot be said."""
    for item in conversation.items:
        _ITEM.decode(item.body).add_to(messages, f"conversation.items[{item.id}]")


def stored_items(items: Sequence[InputItem]) -> list[StoredItem]:
    """Return the items of a request as a conversation has them."""
    return [stored for item in items if (stored := item.stored()) is not None]


def stored_output(items: Iterable[Mapping[str, Any]]) -> list[StoredItem]:
    """Return the items of a response's output as a conversation has them."""
    return [stored_item(item) for item in items]


def check_room(conversation: StoredConversation, added: int, field: str) -> None:
    """Raise InvalidRequest, which names `field`, if `conversation` may not have so many more items."""
    number = len(conversation.items) + added
    if number > MAX_ITEMS:
        raise InvalidRequest(f"a conversation has at most {MAX_ITEMS} items, got {number}", field)


def check_fits(conversation: StoredConversation, model: scheduler_pb2.ModelInfo) -> None:
    """Raise TooLong for a conversation that is certainly too long for `model`, before it is read."""
    check_messages(len(conversation.items), model.max_prompt_tokens)
    check_characters(conversation.characters, model.max_prompt_tokens, model.longest_token)
