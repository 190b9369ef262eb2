"""OpenAI's Responses: POST /v1/responses, and GET and DELETE of those that are stored."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.core.response_store import ResponseStore, StoredResponse
from gateway.core.session_tree import Session
from gateway.http.api import Api, Generation
from gateway.http.common_fields import Sender, Wish, ask
from gateway.http.errors import PreviousResponseNotFound, ResponseNotFound
from gateway.http.input_item import REFERENCE, add_items
from gateway.http.item_references import resolved
from gateway.http.response_answer import ResponseAnswer, response_id
from gateway.http.responses_request import ResponsesRequest, read
from gateway.tenants import CallerIdentity, Credentials

SHOWN = 64  # characters of an unknown id that an error message shows


class ResponseToGenerate:
    """A response that continues `previous`, if there is one; implements ParsedRequest."""

    def __init__(
        self,
        request: ResponsesRequest,
        previous: StoredResponse | None,
        store: ResponseStore,
    ) -> None:
        self.model = request.model
        self.named_tier = request.named_tier
        self.stream = request.stream
        self.body_type = request.body_type
        self.counts_tokens = request.counts_tokens
        self.names = request.names
        self._request = request
        self._tools = request.known_tools()
        self._asked = request.answer()
        self._previous = previous
        self._store = store
        self._conversation = b""  # up to the response, which is stored after it

    @property
    def stored_bytes(self) -> int:
        """See ParsedRequest."""
        return len(self._previous.conversation) if self._previous is not None else 0

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """See ParsedRequest. The previous call's interaction goes on; if that call was in none, this one begins one."""
        sender, previous = self._request.sender(headers), self._previous
        return sender if previous is None else sender._replace(session=Session(previous.interaction or previous.id))

    def generations(self) -> Sequence[Generation]:
        """See ParsedRequest. Instructions are those of this request alone."""
        request, tools = self._request, self._tools
        choice = tools.choice(request.tool_choice, request.parallel_tool_calls)
        history = common_pb2.Chat()
        if self._previous is not None:
            history.MergeFromString(self._previous.conversation)
        add_items(history.messages, request.items(), "input")
        if self._asked.is_to_be_stored:
            self._conversation = history.SerializeToString()
        chat = common_pb2.Chat(tools=tools.allowed(request.tool_choice), tool_choice=choice)
        if request.instructions:
            chat.messages.add(role="system", content=request.instructions)
        chat.MergeFrom(history)
        ask(chat, request.wishes())
        return [Generation(common_pb2.Prompt(chat=chat), request.sampling(choice))]

    def wishes(self) -> Sequence[Wish]:
        """See ParsedRequest."""
        return self._request.wishes()

    def left_out(self) -> Sequence[str]:
        """See ParsedRequest."""
        return self._request.left_out(self._tools)

    def forget(self) -> None:
        """See ParsedRequest. What was said is kept as long as the response is to be stored with it."""
        self._request, self._previous = ResponsesRequest(input=""), None
        self._tools.forget()

    def answer(self, call: Call) -> ResponseAnswer:
        """See ParsedRequest."""
        return ResponseAnswer(self._asked, self._tools, call, partial(self._keep, call))

    def _keep(self, call: Call, body: bytes, message: common_pb2.ChatMessage) -> bool:
        response = StoredResponse(
            id=response_id(call),
            client=call.client,
            interaction=call.interaction,
            body=body,
            conversation=self._conversation + common_pb2.Chat(messages=[message]).SerializeToString(),
        )
        return self._store.add(response, time.monotonic())


class ResponseEndpoints:
    """Answers requests about the responses in `store`.

    `identify` returns who calls, given the user of a body and credentials.
    """

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
        if isinstance(request.input, list) and any(item.kind == REFERENCE for item in request.input):
            identity = self._identify(request.sender({}).user, credentials)
            request.input = resolved(request.input, partial(self._find, identity=identity))
        return ResponseToGenerate(request, self._previous(request, credentials), self._store)

    def _previous(self, request: ResponsesRequest, credentials: Credentials) -> StoredResponse | None:
        wanted = request.previous_response_id
        if not wanted:
            return None
        previous = self._find(wanted, self._identify(request.sender({}).user, credentials))
        if previous is None:
            message = f"Previous response with id {wanted[:SHOWN]!r} not found."
            raise PreviousResponseNotFound(message, "previous_response_id")
        return previous

    def _of_caller(self, wanted: str, credentials: Credentials) -> StoredResponse:
        found = self._find(wanted, self._identify("", credentials))
        if found is None:
            raise ResponseNotFound(f"Response with id {wanted[:SHOWN]!r} not found.")
        return found

    def _find(self, wanted: str, identity: CallerIdentity) -> StoredResponse | None:
        """Return a stored response if `identity` may read it: others do not learn that it exists."""
        found = self._store.find(wanted, time.monotonic())
        return found if found is not None and identity.may_read(found.client) else None
