"""Requests about conversations: /v1/conversations and what lies below it."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from gateway.call import new_id
from gateway.core.stored_conversation import StoredConversation, StoredItem
from gateway.http.conversations import SHOWN, Conversations, check_room, stored_items
from gateway.http.decoding import decode
from gateway.http.errors import ItemNotFound, UnknownEndpoint
from gateway.http.input_item import InputItem, add_items
from gateway.http.item_page import ItemPage, listed
from gateway.http.request import HttpRequest
from gateway.http.user_id import named_by
from serving.rpc.message_body_limiter import MessageBodyLimiter

Answering = Callable[[], Awaitable[bytes]]


class ConversationRequest(msgspec.Struct, kw_only=True):
    """The body that creates a conversation; unknown fields are ignored."""

    items: list[InputItem] | None = None
    metadata: dict[str, str] | None = None


class ConversationUpdate(msgspec.Struct, kw_only=True):
    """The body that replaces a conversation's metadata; unknown fields are ignored."""

    metadata: dict[str, str] | None


class ItemsRequest(msgspec.Struct, kw_only=True):
    """The body that adds items to a conversation; unknown fields are ignored."""

    items: list[InputItem]


_CONVERSATION = msgspec.json.Decoder(ConversationRequest)
_UPDATE = msgspec.json.Decoder(ConversationUpdate)
_ITEMS = msgspec.json.Decoder(ItemsRequest)


class ConversationEndpoints:
    """Answers requests about conversations; no byte of a body is read before its caller is known."""

    def __init__(self, conversations: Conversations, bodies: MessageBodyLimiter) -> None:
        self._conversations = conversations
        self._bodies = bodies

    def methods(self, request: HttpRequest) -> Mapping[str, Answering]:
        """Return what answers the request with JSON, by the methods of its path; raises UnknownEndpoint.

        What is returned raises Unauthenticated, PermissionDenied, ConversationNotFound, ItemNotFound and
        InvalidRequest.
        """
        match request.path.split("/")[3:]:
            case []:
                return {"POST": partial(self._create, request)}
            case [wanted]:
                return {
                    "GET": partial(self._retrieve, request, wanted),
                    "POST": partial(self._update, request, wanted),
                    "DELETE": partial(self._delete, request, wanted),
                }
            case [wanted, "items"]:
                return {"GET": partial(self._list, request, wanted), "POST": partial(self._add, request, wanted)}
            case [wanted, "items", item]:
                return {
                    "GET": partial(self._retrieve_item, request, wanted, item),
                    "DELETE": partial(self._delete_item, request, wanted, item),
                }
            case _:
                raise UnknownEndpoint(f"there is no endpoint {request.path[:128]!r}")

    async def _create(self, request: HttpRequest) -> bytes:
        self._conversations.identify("", request.credentials)
        asked = decode(_CONVERSATION, await request.body(self._bodies) or b"{}")
        identity = self._conversations.identify(named_by(asked.metadata).user, request.credentials)
        created = StoredConversation(
            id=f"conv_{new_id()}",
            client=identity.client,
            created=int(time.time()),
            metadata=msgspec.json.encode(asked.metadata or {}),
        )
        items = _checked(created, asked.items or ())
        self._conversations.keep(created.extended(items), "items" if items else "metadata")
        return _described(created)

    async def _retrieve(self, request: HttpRequest, wanted: str) -> bytes:
        return _described(self._find(request, wanted))

    async def _update(self, request: HttpRequest, wanted: str) -> bytes:
        self._find(request, wanted)
        asked = decode(_UPDATE, await request.body(self._bodies))
        changed = replace(self._find(request, wanted), metadata=msgspec.json.encode(asked.metadata or {}))
        self._conversations.keep(changed, "metadata")
        return _described(changed)

    async def _delete(self, request: HttpRequest, wanted: str) -> bytes:
        found = self._find(request, wanted)
        self._conversations.remove(found)
        return msgspec.json.encode({"id": found.id, "object": "conversation.deleted", "deleted": True})

    async def _list(self, request: HttpRequest, wanted: str) -> bytes:
        return ItemPage.asked_by(request.query).of(self._find(request, wanted))

    async def _add(self, request: HttpRequest, wanted: str) -> bytes:
        self._find(request, wanted)
        asked = decode(_ITEMS, await request.body(self._bodies))
        found = self._find(request, wanted)
        items = _checked(found, asked.items)
        self._conversations.keep(found.extended(items), "items")
        return listed(items, has_more=False)

    async def _retrieve_item(self, request: HttpRequest, wanted: str, item: str) -> bytes:
        found = self._find(request, wanted)
        return found.items[_place(found, item)].body

    async def _delete_item(self, request: HttpRequest, wanted: str, item: str) -> bytes:
        found = self._find(request, wanted)
        changed = found.without(_place(found, item))
        self._conversations.keep(changed, "items")
        return _described(changed)

    def _find(self, request: HttpRequest, wanted: str) -> StoredConversation:
        """Return the conversation as it is now: it may change while a body arrives."""
        return self._conversations.find(wanted, self._conversations.identify("", request.credentials))


def _checked(conversation: StoredConversation, items: Sequence[InputItem]) -> list[StoredItem]:
    """Return `items` as `conversation` will have them; raises InvalidRequest for what has no room or no meaning."""
    check_room(conversation, len(items), "items")
    add_items([], items, "items")
    return stored_items(items)


def _place(conversation: StoredConversation, item: str) -> int:
    """Return the place of an item in its conversation; raises ItemNotFound."""
    place = conversation.find(item)
    if place is None:
        raise ItemNotFound(f"Item with id {item[:SHOWN]!r} not found.")
    return place


def _described(conversation: StoredConversation) -> bytes:
    return msgspec.json.encode(
        {
            "id": conversation.id,
            "object": "conversation",
            "created_at": conversation.created,
            "metadata": msgspec.Raw(conversation.metadata),
        }
    )
