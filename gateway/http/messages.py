"""POST /v1/messages: Anthropic's API."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.http.api import Generation
from gateway.http.blocks import MessageBlocks, ToolChoice, ToolSchema, choice_of, left_out_tools, tools_after, tools_of
from gateway.http.chat_prompt import Content, text_of
from gateway.http.common_fields import (
    Body,
    Level,
    Maximum,
    Sender,
    Wish,
    ask,
    bounded,
    named_by,
    session_of,
    thinking,
)
from gateway.http.constraint import of_schema
from gateway.http.decoding import check_supported, decode
from gateway.http.message_answer import EmptyAnswer, MessageAnswer
from gateway.validation import MAX_MESSAGES, needs_call


class UnsupportedByMessages(Body, kw_only=True):
    """Parameters that clients know and this API does not obey."""

    container: Any = None
    compaction: Any = None
    thread: Any = None


class SchemaToObey(msgspec.Struct, tag="json_schema", tag_field="type"):
    """Ask for JSON that is valid under a schema."""

    schema: dict[str, Any]


class OutputConfig(msgspec.Struct):
    """The options for the output: its format, and the wish for an effort."""

    format: SchemaToObey | None = None
    effort: Level | None = None


class ThinkingWish(msgspec.Struct):
    """The wish that the model thinks before it answers, or does not; a budget is a number of tokens."""

    type: str | None = None
    budget_tokens: Maximum | None = None


class Edit(msgspec.Struct):
    """A part of the conversation that is to be left out of the prompt."""

    type: str | None = None


class ContextManagement(msgspec.Struct):
    """The wishes for what is to be left out of the prompt; earlier thinking always is."""

    edits: list[Edit] | None = None


class Conversation(UnsupportedByMessages, kw_only=True):
    """The prompt of a request; unknown fields are ignored."""

    messages: Annotated[list[MessageBlocks], msgspec.Meta(max_length=MAX_MESSAGES)]
    model: str | None = None
    system: Content = None
    tools: list[ToolSchema] | None = None
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig | None = None
    output_format: SchemaToObey | None = None  # an older name of output_config.format
    thinking: ThinkingWish | None = None
    context_management: ContextManagement | None = None
    cache_control: Any = None  # prefixes are cached without being asked for
    betas: Any = None  # a body names what it asks for, whichever versions of it are meant

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
        tools = tools_after(self.tools, self.messages)
        chat = common_pb2.Chat(
            messages=turns,
            continue_final_message=continues,
            tools=tools_of(tools, self.tool_choice),
            tool_choice=choice_of(tools, self.tool_choice),
        )
        ask(chat, self.wishes())
        return common_pb2.Prompt(chat=chat)

    def wishes(self) -> list[Wish]:
        """Return what the body wishes for. An effort alone does not say that the model is to think."""
        wishes = []
        if self.output_config is not None and self.output_config.effort is not None:
            wishes.append(Wish("output_config.effort", {"reasoning_effort": self.output_config.effort}))
        if self.thinking is not None:
            budget = (
                {} if self.thinking.budget_tokens is None else {"thinking_budget": bounded(self.thinking.budget_tokens)}
            )
            wishes.append(Wish("thinking", {**thinking(self.thinking.type != "disabled"), **budget}))
        edits = (self.context_management and self.context_management.edits) or ()
        wishes += [
            Wish(f"context_management.edits[{index}]")
            for index, edit in enumerate(edits)
            if not (edit.type or "").startswith("clear_thinking")
        ]
        return wishes

    def left_out(self) -> list[str]:
        """See ParsedRequest."""
        blocks = [
            block for number, turn in enumerate(self.messages) for block in turn.left_out(f"messages[{number}].content")
        ]
        return [*left_out_tools(self.tools), *blocks]


class MessagesRequest(Conversation, kw_only=True):
    """The body of a request for a message; implements ParsedRequest."""

    max_tokens: Maximum
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    metadata: Any = None
    # See ParsedRequest. The tiers of Anthropic's API are `auto` and `standard_only`, which are interactive.
    named_tier: ClassVar[str] = ""

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """See ParsedRequest."""
        named = named_by(self.metadata)
        return Sender(named.user, session_of(headers, named.session), named.field)

    @property
    def names(self) -> dict[str, str]:
        """See ParsedRequest."""
        return {} if self.output_format is None else {"sampling.json_schema": "output_format"}

    def generations(self) -> Sequence[Generation]:
        """See ParsedRequest."""
        sampling = self.parameters(max(1, self.max_tokens), self.stop_sequences)
        form = self.output_config and self.output_config.format
        if form is not None and self.output_format is not None:
            raise InvalidRequest(
                "not together with output_config.format: an output has one constraint", "output_format"
            )
        prompt = self.prompt()
        if (form := form or self.output_format) is not None and not needs_call(prompt.chat.tool_choice):
            sampling.MergeFrom(of_schema(form.schema))  # an output that has to be a call has no text
        return [Generation(prompt, sampling)]

    def forget(self) -> None:
        """See ParsedRequest."""
        self.messages = []
        self.system = self.tools = self.metadata = self.cache_control = self.betas = None

    def answer(self, call: Call) -> MessageAnswer:
        """See ParsedRequest."""
        is_single = self.tool_choice is not None and self.tool_choice.disable_parallel_tool_use
        kind = MessageAnswer if self.max_tokens else EmptyAnswer
        return kind(call, most_calls=1 if is_single else None)


_DECODER = msgspec.json.Decoder(MessagesRequest)
_CONVERSATION = msgspec.json.Decoder(Conversation)


def messages(body: bytes) -> MessagesRequest:
    """See Api."""
    asked = decode(_DECODER, body)
    check_supported(asked, UnsupportedByMessages, {})
    return asked


def conversation(body: bytes) -> Conversation:
    """Return what the model is to see, of a body that asks for nothing else; raises InvalidRequest."""
    asked = decode(_CONVERSATION, body)
    check_supported(asked, UnsupportedByMessages, {})
    return asked
