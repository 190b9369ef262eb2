"""OpenAI's Responses: POST /v1/responses, and GET and DELETE of those that are stored."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import msgspec

from fairlead.v1 import common_pb2, scheduler_pb2
from gateway.call import Call
from gateway.core.response_store import ResponseStore, StoredResponse
from gateway.core.session_tree import Session
from gateway.core.stored_conversation import StoredConversation
from gateway.credentials import Credentials
from gateway.http.api import Api, Generation
from gateway.http.conversations import (
    SHOWN,
    Conversations,
    add_conversation,
    check_fits,
    check_room,
    stored_items,
    stored_output,
)
from gateway.http.errors import PreviousResponseNotFound, ResponseNotFound
from gateway.http.input_item import add_items
from gateway.http.item_references import REFERENCE, resolved
from gateway.http.response_answer import ResponseAnswer, response_id
from gateway.http.response_tools import ResponseTools
from gateway.http.responses_request import ResponsesRequest, read
from gateway.http.wishes import ask
from gateway.tenants import CallerIdentity


class ResponseToGenerate:
    """A response that continues `previous` or `conversation`, if there is one of them; implements ParsedRequest."""

    def __init__(
        self,
        request: ResponsesRequest,
        previous: StoredResponse | None,
        conversation: StoredConversation | None,
        store: ResponseStore,
        conversations: Conversations,
    ) -> None:
        self.model = request.model
        self.named_user = request.named_user
        self.is_streamed = request.is_streamed
        self.body_type = request.body_type
        self.counts_tokens = request.counts_tokens
        self._request = request
        self._previous = previous
        self._conversation = conversation
        self._store = store
        self._conversations = conversations

    @property
    def stored_bytes(self) -> int:
        """See ParsedRequest."""
        previous = len(self._previous.conversation) if self._previous is not None else 0
        return previous + (self._conversation.length if self._conversation is not None else 0)

    def session(self, headers: Mapping[str, str]) -> Session | None:
        """See ParsedRequest. The previous call's interaction goes on; if that call was in none, this one begins one.

        A conversation is an interaction.
        """
        if self._previous is not None:
            return Session(self._previous.interaction or self._previous.id)
        if self._conversation is not None:
            return Session(self._conversation.id)
        return self._request.session(headers)

    def generations(self) -> Sequence[Generation]:
        """See ParsedRequest. Instructions are those of this request alone."""
        request, tools = self._request, self._tools
        choice = tools.choice(request.tool_choice, request.parallel_tool_calls)
        chat = common_pb2.Chat(tools=tools.allowed(request.tool_choice), tool_choice=choice)
        if request.instructions:
            chat.messages.add(role="system", content=request.instructions)
        self._append_history(chat)
        ask(chat, request.wishes())
        return [Generation(common_pb2.Prompt(chat=chat), request.sampling(choice))]

    def left_out(self, granted: Collection[str]) -> Sequence[str]:
        """See ParsedRequest."""
        return self._request.left_out(granted, self._tools)

    @cached_property
    def _tools(self) -> ResponseTools:
        return self._request.known_tools()

    def answer(self, call: Call) -> ResponseAnswer:
        """See ParsedRequest."""
        return ResponseAnswer(self._request, self._tools, call, partial(self._keep, call), self._extend)

    def _keep(self, call: Call, body: bytes, message: common_pb2.ChatMessage) -> bool:
        chat = common_pb2.Chat()
        self._append_history(chat)
        chat.messages.append(message)
        response = StoredResponse(
            id=response_id(call),
            client=call.client,
            interaction=call.interaction,
            body=body,
            conversation=chat.SerializeToString(),
        )
        return self._store.add(response, time.monotonic())

    def _extend(self, output: Sequence[Mapping[str, Any]]) -> bool:
        """Add input and output to the conversation as it is now, if there is one; return whether it was possible."""
        if self._conversation is None:
            return False
        added = [*stored_items(self._request.items()), *stored_output(output)]
        return self._conversations.extend(self._conversation.id, added)

    def _append_history(self, chat: common_pb2.Chat) -> None:
        """Append what was said so far. What was said before is not kept for long: many calls may continue it."""
        if self._previous is not None:
            chat.MergeFromString(self._previous.conversation)
        if self._conversation is not None:
            add_conversation(chat.messages, self._conversation)
        add_items(chat.messages, self._request.items(), "input")


class ResponseEndpoints:
    """Answers requests about the responses in `store`, which may be added to `conversations`.

    `resolve` returns the limits of a model.
    """

    def __init__(
        self, store: ResponseStore, conversations: Conversations, resolve: Callable[[str], scheduler_pb2.ModelInfo]
    ) -> None:
        self._store = store
        self._resolve = resolve
        self._conversations = conversations
        self._identify = conversations.identify

    def api(self, credentials: Credentials) -> Api:
        """Return what reads the bodies of the caller that shows `credentials`."""
        return partial(self._read, credentials)

    def retrieve(self, wanted: str, credentials: Credentials) -> bytes:
        """Return a stored response as JSON; raises ResponseNotFound for one that is unknown or not the caller's."""
        return self._of_caller(wanted, credentials).body

    def delete(self, wanted: str, credentials: Credentials) -> bytes:
        """Forget a stored response, and return JSON that says so; raises as `retrieve`."""
        found = self._of_caller(wanted, credentials)
        self._store.remove(found.id)
        return msgspec.json.encode({"id": found.id, "object": "response", "deleted": True})

    def _read(self, credentials: Credentials, body: bytes) -> ResponseToGenerate:
        request = read(body)
        if isinstance(request.input, list) and any(item.kind == REFERENCE for item in request.input):
            identity = self._identify(request.named_user, credentials)
            request.input = resolved(request.input, partial(self._find, identity=identity))
        previous, conversation = self._previous(request, credentials), self._conversation(request, credentials)
        return ResponseToGenerate(request, previous, conversation, self._store, self._conversations)

    def _previous(self, request: ResponsesRequest, credentials: Credentials) -> StoredResponse | None:
        wanted = request.previous_response_id
        if not wanted:
            return None
        previous = self._find(wanted, self._identify(request.named_user, credentials))
        if previous is None:
            message = f"Previous response with id {wanted[:SHOWN]!r} not found."
            raise PreviousResponseNotFound(message, "previous_response_id")
        return previous

    def _conversation(self, request: ResponsesRequest, credentials: Credentials) -> StoredConversation | None:
        wanted = request.conversation_id
        if wanted is None:
            return None
        identity = self._identify(request.named_user, credentials)
        conversation = self._conversations.find(wanted, identity, "conversation")
        check_room(conversation, len(request.items()), "input")
        check_fits(conversation, self._resolve(request.model or ""))
        return conversation

    def _of_caller(self, wanted: str, credentials: Credentials) -> StoredResponse:
        found = self._find(wanted, self._identify("", credentials))
        if found is None:
            raise ResponseNotFound(f"Response with id {wanted[:SHOWN]!r} not found.")
        return found

    def _find(self, wanted: str, identity: CallerIdentity) -> StoredResponse | None:
        """Return a stored response if `identity` may read it: others do not learn that it exists."""
        found = self._store.find(wanted, time.monotonic())
        return found if isinstance(found, StoredResponse) and identity.may_read(found.client) else None
