"""Chats of OpenAI's API as prompts."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.prompt import as_template_kwargs
from fairlead.v1 import common_pb2
from gateway.http.content import TEXTS, content_of, media_in, result_text, text_of
from gateway.http.tools import custom_arguments
from gateway.http.wishes import Wish, ask
from gateway.json_shape import check_shape
from gateway.validation import (
    MAX_CALLED,
    MAX_TEMPLATE_BYTES,
    MAX_TEMPLATE_DEPTH,
    MAX_TOOL_CALLS,
    check_count,
    check_name,
)

ROLES = {"developer": "system"}  # another name for it


def arguments_text(arguments: Any) -> str:
    """Return an earlier call's arguments as text. They may be anything: a model has written them, or a program."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


class CalledFunction(msgspec.Struct):
    """The function that a call names, and its arguments as JSON."""

    name: str
    arguments: Any = None


class CalledCustomTool(msgspec.Struct):
    """The custom tool that a call names, and its text."""

    name: str
    input: Any = None


class MadeCall(msgspec.Struct):
    """A call that an assistant's message makes; its type is ignored, which programs lose that join it from a stream."""

    function: CalledFunction | None = None
    custom: CalledCustomTool | None = None
    id: str | None = None

    def as_call(self, place: str) -> common_pb2.ToolCall:
        """Return the call; raises InvalidRequest, which names the field below `place`."""
        function, custom = self.function, self.custom
        if function is not None:
            check_name(function.name, f"{place}.function.name", MAX_CALLED)
            return common_pb2.ToolCall(id=self.id, name=function.name, arguments=arguments_text(function.arguments))
        if custom is not None:
            check_name(custom.name, f"{place}.custom.name", MAX_CALLED)
            arguments = custom_arguments(arguments_text(custom.input))
            return common_pb2.ToolCall(id=self.id, name=custom.name, arguments=arguments)
        raise InvalidRequest("a call needs the field 'function' or 'custom'", place)


class Message(msgspec.Struct):
    """A message of the conversation; its author's name and earlier reasoning are ignored."""

    role: str
    content: Any = None  # of a tool anything
    tool_calls: list[MadeCall] | None = None
    tool_call_id: str | None = None
    function_call: Any = None

    def as_message(self, place: str) -> common_pb2.ChatMessage:
        """Return the message; raises InvalidRequest, which names the field below `place`, for what is not text."""
        if self.function_call:
            raise InvalidRequest("this parameter is not supported: use tool_calls", f"{place}.function_call")
        return common_pb2.ChatMessage(
            role=ROLES.get(self.role, self.role),
            content=self.text(place),
            tool_calls=[call.as_call(f"{place}.tool_calls[{n}]") for n, call in enumerate(self.tool_calls or ())],
            tool_call_id=self.tool_call_id,
        )

    @property
    def left_out_parts(self) -> Iterator[int]:
        """The numbers of the parts of a tool's result of which the model is told no more than the type."""
        return media_in(self.content) if self.role == "tool" else iter(())

    def text(self, place: str) -> str:
        """Return the message's text; raises InvalidRequest for what is not text, but in the result of a tool."""
        if self.role == "tool":
            return result_text(self.content)
        return text_of(content_of(self.content, place), f"{place}.content", TEXTS)


def chat_prompt(
    messages: Sequence[Message],
    add_generation_prompt: bool | None,
    continue_final_message: bool | None,
    chat_template_kwargs: dict[str, Any] | None,
    tools: Sequence[common_pb2.Tool],
    tool_choice: common_pb2.ToolChoice,
    wishes: Sequence[Wish],
) -> common_pb2.Prompt:
    """Return `messages` as a prompt; the other parameters say how it is rendered, as those of vLLM.

    Raises InvalidRequest for what is not text, and for variables of the template that are too large.
    """
    calls = sum(len(message.tool_calls or ()) for message in messages)
    check_count(calls, MAX_TOOL_CALLS, "tool calls", "messages")
    chat = common_pb2.Chat(
        messages=[message.as_message(f"messages[{index}]") for index, message in enumerate(messages)],
        add_generation_prompt=add_generation_prompt,
        continue_final_message=bool(continue_final_message),
        tools=tools,
        tool_choice=tool_choice,
    )
    ask(chat, wishes)
    if chat_template_kwargs:
        _check_kwargs(chat_template_kwargs)
        chat.chat_template_kwargs.CopyFrom(as_template_kwargs(chat_template_kwargs))
    return common_pb2.Prompt(chat=chat)


def _check_kwargs(chat_template_kwargs: dict[str, Any]) -> None:
    """Raise InvalidRequest for variables that are too large or nested too deeply to make a message of them."""
    text = msgspec.json.encode(chat_template_kwargs)
    if len(text) > MAX_TEMPLATE_BYTES:
        raise InvalidRequest(f"at most {MAX_TEMPLATE_BYTES} bytes, got {len(text)}", "chat_template_kwargs")
    check_shape(text, "chat_template_kwargs", 2 * MAX_TEMPLATE_DEPTH)  # the exact limit names the variable
