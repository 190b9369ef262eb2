"""POST /v1/responses: OpenAI's Responses, of which none is stored."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from fairlead.errors import FairleadError, InvalidRequest
from fairlead.outcomes import FinishReason
from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.core.coalescer import OutputChunk
from gateway.http.api import Generation
from gateway.http.chat_prompt import ROLES
from gateway.http.content import Content, text_of
from gateway.http.decoding import decode
from gateway.http.dialect import OPENAI_RESPONSES
from gateway.http.errors import PreviousResponseNotFound
from gateway.http.openai_request import OpenAIRequest
from gateway.http.sampling import Natural
from gateway.http.sse import named_event
from gateway.http.unsupported import check_supported
from gateway.validation import MAX_MESSAGES

TEXTS = ("input_text", "output_text", "text")


class UnsupportedByResponses(OpenAIRequest, kw_only=True):
    """Parameters that clients know and this API does not obey."""

    store: Any = None
    conversation: Any = None
    background: Any = None
    tools: Any = None
    tool_choice: Any = None
    text: Any = None
    reasoning: Any = None
    include: Any = None
    truncation: Any = None
    context_management: Any = None
    top_logprobs: Any = None


# Values that ask for nothing but what is done anyway.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "store": (False,),
    "background": (False,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "text": ({}, {"format": {"type": "text"}}),
    "reasoning": ({}, {"effort": "none"}),
    "include": ([], ["reasoning.encrypted_content"]),  # of reasoning that there is not
    "truncation": ("disabled",),
    "context_management": ([],),
    "top_logprobs": (0,),
}


class ResponseItem(msgspec.Struct):
    """Hold one item of the input; only messages are understood."""

    type: str = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Content = None

    def message(self, place: str) -> common_pb2.ChatMessage:
        """Return the message; raises InvalidRequest for what is none, and for what is not text."""
        if self.type != "message":
            raise InvalidRequest(f"only items of type 'message' are supported, got {self.type[:32]!r}", f"{place}.type")
        if self.role is None:
            raise InvalidRequest("a message needs a role", f"{place}.role")
        return common_pb2.ChatMessage(
            role=ROLES.get(self.role, self.role), content=text_of(self.content, f"{place}.content", TEXTS)
        )


class ResponsesRequest(UnsupportedByResponses, kw_only=True):
    """Say what response is to be generated; implements Asked."""

    input: str | Annotated[list[ResponseItem], msgspec.Meta(max_length=MAX_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: Natural | None = None
    previous_response_id: str | None = None
    prompt: Any = None
    metadata: dict[str, str] | None = None

    def generations(self) -> Sequence[Generation]:
        """See Asked."""
        prompt = common_pb2.Prompt(chat=common_pb2.Chat(messages=self._messages()))
        return [Generation(prompt, self.parameters(self.max_output_tokens, None))]

    def answer(self, call: Call) -> "ResponseAnswer":
        """See Asked."""
        return ResponseAnswer(self, call)

    def _messages(self) -> list[common_pb2.ChatMessage]:
        if isinstance(self.input, str):
            messages = [common_pb2.ChatMessage(role="user", content=self.input)]
        else:
            messages = [item.message(f"input[{index}]") for index, item in enumerate(self.input)]
        if self.instructions:
            messages.insert(0, common_pb2.ChatMessage(role="system", content=self.instructions))
        return messages


class ResponseAnswer:
    """Write the response that one call generates; implements Answer."""

    def __init__(self, asked: ResponsesRequest, call: Call) -> None:
        self._asked = asked
        self._call = call
        self._item = f"msg_{call.request_id}"
        self._texts: list[str] = []
        self._events = 0
        place = {"item_id": self._item, "output_index": 0, "content_index": 0, "logprobs": []}
        head = msgspec.json.encode({"type": "response.output_text.delta", **place})[:-1]
        self._before_delta = b"event: response.output_text.delta\ndata: " + head

    def chunk(self, index: int, chunk: OutputChunk) -> bytes:
        """See Answer."""
        opening = self._opening()
        self._texts.append(chunk.text)
        delta = b'%s,"sequence_number":%d,"delta":%s}\n\n'
        return opening + delta % (self._before_delta, self._number(), msgspec.json.encode(chunk.text))

    def finished(self, index: int, call: Call) -> bytes:
        """See Answer."""
        opening, text = self._opening(), "".join(self._texts)
        place = {"item_id": self._item, "output_index": 0, "content_index": 0}
        return b"".join(
            (
                opening,
                self._event("response.output_text.done", text=text, logprobs=[], **place),
                self._event("response.content_part.done", part=_part(text), **place),
                self._event("response.output_item.done", output_index=0, item=self._message(text)),
            )
        )

    def closing(self, calls: Sequence[Call]) -> bytes:
        """See Answer."""
        response = self._response(_status(self._call), [self._message("".join(self._texts))])
        return self._event(f"response.{response['status']}", response=response)

    def error(self, error: FairleadError) -> bytes:
        """See Answer. The fields are those of the event `error`, and `error` itself is what clients raise."""
        described = OPENAI_RESPONSES.described(error)
        fields = {name: described[name] for name in ("code", "message", "param")}
        return self._event("error", **fields, error=described)

    def whole(self, calls: Sequence[Call], texts: Sequence[str]) -> bytes:
        """See Answer."""
        return msgspec.json.encode(self._response(_status(self._call), [self._message(texts[0])]))

    def _opening(self) -> bytes:
        """Return what stands before the first text, once."""
        if self._events:
            return b""
        response = self._response("in_progress", [])
        item = {"id": self._item, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        place = {"item_id": self._item, "output_index": 0, "content_index": 0}
        return b"".join(
            (
                self._event("response.created", response=response),
                self._event("response.in_progress", response=response),
                self._event("response.output_item.added", output_index=0, item=item),
                self._event("response.content_part.added", part=_part(""), **place),
            )
        )

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = {"type": kind, "sequence_number": self._number(), **fields}
        return named_event(kind.encode(), msgspec.json.encode(data))

    def _number(self) -> int:
        self._events += 1
        return self._events - 1

    def _message(self, text: str) -> dict[str, Any]:
        """Return the only item of the output, complete."""
        content = [_part(text)]
        status = _status(self._call)
        return {"id": self._item, "type": "message", "status": status, "role": "assistant", "content": content}

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        asked, call = self._asked, self._call
        return {
            "id": f"resp_{call.request_id}",
            "object": "response",
            "created_at": call.timings.received // 1_000_000_000,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "model": call.model,
            "output": output,
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "temperature": 1.0 if asked.temperature is None else asked.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": 1.0 if asked.top_p is None else asked.top_p,
            "truncation": "disabled",
            "usage": None if status == "in_progress" else _usage(call),
            "user": asked.user,
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _status(call: Call) -> str:
    return "incomplete" if call.finish_reason is FinishReason.LENGTH else "completed"


def _usage(call: Call) -> dict[str, Any]:
    usage = call.usage
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }


_DECODER = msgspec.json.Decoder(ResponsesRequest)


def responses(body: bytes) -> ResponsesRequest:
    """See Api."""
    asked = decode(_DECODER, body)
    check_supported(asked, UnsupportedByResponses, HARMLESS)
    if asked.previous_response_id:
        raise PreviousResponseNotFound(
            "no response is stored: send the whole conversation as input", "previous_response_id"
        )
    if asked.prompt is not None:
        raise InvalidRequest("no prompt is stored: send it as input and instructions", "prompt.id")
    return asked
