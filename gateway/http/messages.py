"""POST /v1/messages: Anthropic's API."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.core.session_tree import Session
from gateway.http.api import Generation
from gateway.http.blocks import MessageBlocks, ToolChoice, ToolSchema, choice_of, tools_of
from gateway.http.constraint import of_schema
from gateway.http.content import Content, text_of
from gateway.http.decoding import decode
from gateway.http.message_answer import MessageAnswer
from gateway.http.sampling import Natural, Sampling
from gateway.http.session import session_of
from gateway.http.unsupported import check_supported
from gateway.http.user_id import named_by
from gateway.validation import MAX_MESSAGES


class UnsupportedByMessages(Sampling, kw_only=True):
    """Parameters that clients know and this API does not obey."""

    thinking: Any = None
    mcp_servers: Any = None
    container: Any = None
    context_management: Any = None
    compaction: Any = None
    inference_geo: Any = None
    thread: Any = None


# Values that ask for nothing but what is done anyway.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "thinking": ({"type": "disabled"},),
    "mcp_servers": ([],),
    "context_management": ({}, {"edits": []}),
}


class SchemaToObey(msgspec.Struct, tag="json_schema", tag_field="type"):
    """Ask for JSON that is valid under a schema."""

    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, forbid_unknown_fields=True):
    """The options for the output: its format; an effort is not supported."""

    format: SchemaToObey | None = None
    effort: None = None


class Conversation(UnsupportedByMessages, kw_only=True):
    """The prompt of a request; unknown fields are ignored."""

    messages: Annotated[list[MessageBlocks], msgspec.Meta(max_length=MAX_MESSAGES)]
    model: str = ""
    system: Content = None
    tools: list[ToolSchema] | None = None
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig | None = None
    output_format: SchemaToObey | None = None  # an older name of output_config.format

    def prompt(self) -> common_pb2.Prompt:
        """Return the chat, which continues what the assistant said last; raises InvalidRequest for what is not text."""
        turns = [
            message
            for index, turn in enumerate(self.messages)
            for message in turn.as_messages(f"messages[{index}].content")
        ]
        if system := text_of(self.system, "system"):
            turns.insert(0, common_pb2.ChatMessage(role="system", content=system))
        continues = bool(self.messages) and self.messages[-1].role == "assistant"
        return common_pb2.Prompt(
            chat=common_pb2.Chat(
                messages=turns,
                continue_final_message=continues,
                tools=tools_of(self.tools, self.tool_choice),
                tool_choice=choice_of(self.tool_choice),
            )
        )


class MessagesRequest(Conversation, kw_only=True):
    """The body of a request for a message; implements ParsedRequest."""

    max_tokens: Natural
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    metadata: Any = None

    @property
    def named_user(self) -> str:
        """See ParsedRequest."""
        return named_by(self.metadata).user

    @property
    def is_streamed(self) -> bool:
        """See ParsedRequest."""
        return bool(self.stream)

    def session(self, headers: Mapping[str, str]) -> Session | None:
        """See ParsedRequest."""
        return session_of(headers, named_by(self.metadata).session)

    def generations(self) -> Sequence[Generation]:
        """See ParsedRequest."""
        sampling = self.parameters(self.max_tokens, self.stop_sequences)
        form = self.output_config and self.output_config.format
        if form is not None and self.output_format is not None:
            raise InvalidRequest(
                "not together with output_config.format: an output has one constraint", "output_format"
            )
        if (form := form or self.output_format) is not None:
            sampling.MergeFrom(of_schema(form.schema))
        return [Generation(self.prompt(), sampling)]

    def answer(self, call: Call) -> MessageAnswer:
        """See ParsedRequest."""
        is_single = self.tool_choice is not None and self.tool_choice.disable_parallel_tool_use
        return MessageAnswer(call, most_calls=1 if is_single else None)


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
