"""POST /v1/messages: Anthropic's API."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from fairlead.errors import FairleadError
from fairlead.outcomes import FinishReason
from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.core.coalescer import OutputChunk
from gateway.core.session_tree import Session
from gateway.http.api import Generation
from gateway.http.content import Content, text_of
from gateway.http.decoding import decode
from gateway.http.dialect import ANTHROPIC
from gateway.http.sampling import Natural, Sampling
from gateway.http.session import session_of
from gateway.http.sse import named_event
from gateway.http.unsupported import check_supported
from gateway.http.user_id import named_by
from gateway.validation import MAX_MESSAGES

BEFORE_TEXT = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":'
)
AFTER_TEXT = b"}}\n\n"


class UnsupportedByMessages(Sampling, kw_only=True):
    """Parameters that clients know and this API does not obey."""

    tools: Any = None
    tool_choice: Any = None
    thinking: Any = None
    output_config: Any = None
    output_format: Any = None
    mcp_servers: Any = None
    container: Any = None
    context_management: Any = None
    compaction: Any = None
    inference_geo: Any = None
    thread: Any = None


# Values that ask for nothing but what is done anyway.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ({"type": "none"}, {"type": "auto"}),
    "thinking": ({"type": "disabled"},),
    "output_config": ({},),
    "mcp_servers": ([],),
    "context_management": ({}, {"edits": []}),
}


class Turn(msgspec.Struct):
    """Hold one message of the conversation."""

    role: Literal["user", "assistant"]
    content: Content


class Conversation(UnsupportedByMessages, kw_only=True):
    """What the model is to see; unknown fields are ignored."""

    messages: Annotated[list[Turn], msgspec.Meta(max_length=MAX_MESSAGES)]
    model: str = ""
    system: Content = None

    def prompt(self) -> common_pb2.Prompt:
        """Return the chat, which continues what the assistant said last; raises InvalidRequest for what is not text."""
        turns = [
            common_pb2.ChatMessage(role=turn.role, content=text_of(turn.content, f"messages[{index}].content"))
            for index, turn in enumerate(self.messages)
        ]
        if system := text_of(self.system, "system"):
            turns.insert(0, common_pb2.ChatMessage(role="system", content=system))
        continues = bool(self.messages) and self.messages[-1].role == "assistant"
        return common_pb2.Prompt(chat=common_pb2.Chat(messages=turns, continue_final_message=continues))


class MessagesRequest(Conversation, kw_only=True):
    """Say what message is to be generated; implements Asked."""

    max_tokens: Natural
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    metadata: Any = None

    @property
    def named_user(self) -> str:
        """See Asked."""
        return named_by(self.metadata).user

    @property
    def is_streamed(self) -> bool:
        """See Asked."""
        return bool(self.stream)

    def session(self, headers: Mapping[str, str]) -> Session | None:
        """See Asked."""
        return session_of(headers, named_by(self.metadata).session)

    def generations(self) -> Sequence[Generation]:
        """See Asked."""
        return [Generation(self.prompt(), self.parameters(self.max_tokens, self.stop_sequences))]

    def answer(self, call: Call) -> "MessageAnswer":
        """See Asked."""
        return MessageAnswer(call)


class MessageAnswer:
    """Write the message that one call generates; implements Answer."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._has_begun = False

    def chunk(self, index: int, chunk: OutputChunk) -> bytes:
        """See Answer."""
        return b"%s%s%s%s" % (self._opening(), BEFORE_TEXT, msgspec.json.encode(chunk.text), AFTER_TEXT)

    def finished(self, index: int, call: Call, last: OutputChunk | None) -> bytes:
        """See Answer."""
        output = self._opening() if last is None else self.chunk(index, last)
        stopped = _event({"type": "content_block_stop", "index": 0})
        delta = _event({"type": "message_delta", "delta": _stop(call), "usage": _usage(call)})
        return output + stopped + delta

    def closing(self, calls: Sequence[Call]) -> bytes:
        """See Answer."""
        return _event({"type": "message_stop"})

    def error(self, error: FairleadError) -> bytes:
        """See Answer."""
        return named_event(b"error", ANTHROPIC.error_body(error, self._call.request_id))

    def whole(self, calls: Sequence[Call], outputs: Sequence[OutputChunk]) -> bytes:
        """See Answer."""
        [call], [output] = calls, outputs
        return msgspec.json.encode(self._message([{"type": "text", "text": output.text}], _stop(call)))

    def _opening(self) -> bytes:
        """Return what stands before the first text, once."""
        if self._has_begun:
            return b""
        self._has_begun = True
        message = self._message([], {"stop_reason": None, "stop_sequence": None})
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        return _event({"type": "message_start", "message": message}) + _event(block) + ANTHROPIC.ping

    def _message(self, content: list[dict[str, str]], stop: dict[str, str | None]) -> dict[str, Any]:
        return {
            "id": f"msg_{self._call.request_id}",
            "type": "message",
            "role": "assistant",
            "model": self._call.model,
            "content": content,
            **stop,
            "usage": _usage(self._call),
        }


def _event(data: dict[str, Any]) -> bytes:
    return named_event(data["type"].encode(), msgspec.json.encode(data))


def _stop(call: Call) -> dict[str, str | None]:
    if call.finish_reason is FinishReason.LENGTH:
        return {"stop_reason": "max_tokens", "stop_sequence": None}
    reason = "stop_sequence" if call.stop_string else "end_turn"
    return {"stop_reason": reason, "stop_sequence": call.stop_string or None}


def _usage(call: Call) -> dict[str, int]:
    """Return the numbers of tokens; those of the prompt that were cached are not among `input_tokens`."""
    usage = call.usage
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }


_DECODER = msgspec.json.Decoder(MessagesRequest)
_CONVERSATION = msgspec.json.Decoder(Conversation)


def messages(body: bytes) -> MessagesRequest:
    """See Api."""
    asked = decode(_DECODER, body)
    check_supported(asked, UnsupportedByMessages, HARMLESS)
    return asked


def conversation(body: bytes) -> Conversation:
    """Return what the model is to see, of a body that asks for nothing else; raises InvalidRequest."""
    asked = decode(_CONVERSATION, body)
    check_supported(asked, UnsupportedByMessages, HARMLESS)
    return asked
