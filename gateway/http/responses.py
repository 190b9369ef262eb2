"""OpenAI's Responses: POST /v1/responses, and GET and DELETE of those that are stored."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.core.response_store import ResponseStore, StoredResponse
from gateway.core.session_tree import Session
from gateway.credentials import Credentials
from gateway.http.api import Api, Generation
from gateway.http.errors import PreviousResponseNotFound, ResponseNotFound
from gateway.http.response_answer import ResponseAnswer, response_id
from gateway.http.responses_request import ResponsesRequest, read
from gateway.http.tools import tool_choice
from gateway.tenants import CallerIdentity

SHOWN = 64  # characters of an unknown id that an error message shows


class ResponseToGenerate:
    """A response that continues the conversation of `previous`, if there is one; implements Asked."""

    def __init__(self, request: ResponsesRequest, previous: StoredResponse | None, store: ResponseStore) -> None:
        self.model = request.model
        self.named_user = request.named_user
        self.is_streamed = request.is_streamed
        self._request = request
        self._previous = previous
        self._store = store
        self._input = request.messages()

    def session(self, headers: Mapping[str, str]) -> Session | None:
        """See Asked. The previous call's interaction goes on; if that call was in none, this one begins one."""
        if self._previous is not None:
            return Session(self._previous.interaction or self._previous.id)
        return self._request.session(headers)

    def generations(self) -> Sequence[Generation]:
        """See Asked. Instructions are those of this request alone."""
        chat = common_pb2.Chat()
        if self._request.instructions:
            chat.messages.add(role="system", content=self._request.instructions)
        self._append_conversation(chat)
        chat.tools.extend(self._request.tools_to_offer())
        chat.tool_choice.CopyFrom(tool_choice(self._request.tool_choice, self._request.parallel_tool_calls))
        return [Generation(common_pb2.Prompt(chat=chat), self._request.sampling())]

    def answer(self, call: Call) -> ResponseAnswer:
        """See Asked."""
        return ResponseAnswer(self._request, call, partial(self._keep, call))

    def _keep(self, call: Call, body: bytes, message: common_pb2.ChatMessage) -> bool:
        chat = common_pb2.Chat()
        self._append_conversation(chat)
        chat.messages.append(message)
        response = StoredResponse(
            id=response_id(call),
            client=call.client,
            interaction=call.interaction,
            body=body,
            conversation=chat.SerializeToString(),
        )
        return self._store.add(response, time.monotonic())

    def _append_conversation(self, chat: common_pb2.Chat) -> None:
        """Append what was said so far. The previous conversation is not kept for long: many calls may continue it."""
        if self._previous is not None:
            chat.MergeFromString(self._previous.conversation)
        chat.messages.extend(self._input)


class ResponseEndpoints:
    """Answer requests about responses; `identify` returns who calls, given the user of a body and credentials."""

    def __init__(self, store: ResponseStore, identify: Callable[[str, Credentials], CallerIdentity]) -> None:
        self._store = store
        self._identify = identify

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
        previous = None
        if wanted := request.previous_response_id:
            previous = self._find(wanted, self._identify(request.named_user, credentials))
            if previous is None:
                message = f"Previous response with id {wanted[:SHOWN]!r} not found."
                raise PreviousResponseNotFound(message, "previous_response_id")
        return ResponseToGenerate(request, previous, self._store)

    def _of_caller(self, wanted: str, credentials: Credentials) -> StoredResponse:
        found = self._find(wanted, self._identify("", credentials))
        if found is None:
            raise ResponseNotFound(f"Response with id {wanted[:SHOWN]!r} not found.")
        return found

    def _find(self, wanted: str, identity: CallerIdentity) -> StoredResponse | None:
        """Return a stored response if `identity` may read it: others do not learn that it exists."""
        found = self._store.find(wanted, time.monotonic())
        return found if found is not None and identity.may_read(found.client) else None
