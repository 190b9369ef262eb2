"""Chats of OpenAI's API as prompts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.prompt import as_template_kwargs
from fairlead.v1 import common_pb2
from gateway.http.common_fields import Wish, ask
from gateway.http.decoding import check_shape
from gateway.http.mismatch import mismatch
from gateway.http.tools import custom_arguments
from gateway.validation import (
    MAX_CALLED,
    MAX_MESSAGES,
    MAX_TEMPLATE_BYTES,
    MAX_TEMPLATE_DEPTH,
    check_name,
)


class Part(msgspec.Struct):
    """A part of a message's content, or of a system prompt; without a type it is a text."""

    type: str | None = None
    text: str | None = None
    refusal: str | None = None

    @property
    def kind(self) -> str:
        """The type of the part, which is a text if it does not say."""
        return self.type or "text"


TEXTS = ("text", "input_text", "output_text", "refusal")  # parts of messages of OpenAI's APIs
REASONING = ("thinking", "redacted_thinking", "reasoning", "reasoning_text", "summary_text")  # parts that are ignored
# Parts that this server cannot read.
MEDIA = (
    *("image", "image_url", "input_image", "computer_screenshot"),
    *("audio", "input_audio", "video", "video_url"),
    *("document", "file", "input_file"),
)
Content = str | Annotated[list[Part | str], msgspec.Meta(max_length=MAX_MESSAGES)] | None


class _HasContent(msgspec.Struct):
    """msgspec remembers how to read a class; how to read a union it finds out anew each time, in ten times as long."""

    content: Content


def content_of(value: Any, place: str) -> Content:
    """Return `value` as the content of the message at `place`; raise InvalidRequest, which names the part."""
    message = {"content": value}
    try:
        return msgspec.convert(message, _HasContent).content
    except msgspec.ValidationError as error:
        fault = mismatch(error, message, _HasContent)
        raise InvalidRequest(fault.message.removeprefix(f"{fault.field}: "), f"{place}.{fault.field}") from None


def text_of(content: Content, place: str, types: tuple[str, ...] = ("text",)) -> str:
    """Return the text of `content`, parts on lines of their own, without earlier reasoning.

    Raises InvalidRequest, which names the part below `place`, where its type is none of `types`.
    """
    if content is None or isinstance(content, str):
        return content or ""
    parts = [Part(text=part) if isinstance(part, str) else part for part in content]
    for index, part in enumerate(parts):
        if part.kind not in types and part.kind not in REASONING:
            expected = " and ".join(map(repr, types))
            raise InvalidRequest(
                f"only parts of type {expected} are supported, got {part.kind[:32]!r}", f"{place}[{index}].type"
            )
    return "\n".join(part.text or part.refusal or "" for part in parts if part.kind not in REASONING)


def result_text(content: Any) -> str:
    """Return the result of a tool as text: what is neither a text nor has one, as JSON, and media by their types.

    A program cannot take back what its tool has answered, so that nothing in it is refused.
    """
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    if not parts or not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts):
        return msgspec.json.encode(content).decode()
    return "\n".join(_part_text(part) for part in parts)


def media_in(content: Any) -> Iterator[int]:
    """Yield the numbers of the parts of a tool's result of which the model is told no more than the type."""
    parts = content if isinstance(content, list) else [content]
    return (index for index, part in enumerate(parts) if isinstance(part, dict) and _is_medium(part))


def _is_medium(part: Mapping[str, Any]) -> bool:
    return part.get("type") in MEDIA and text_in(part) is None


def _part_text(part: Mapping[str, Any]) -> str:
    text = f"[{part['type']}]" if _is_medium(part) else text_in(part)
    return msgspec.json.encode(part).decode() if text is None else text


def text_in(part: Mapping[str, Any]) -> str | None:
    """Return the text of a part, of the source of a document, or of the parts of what a search has found."""
    match part:
        case {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": "tool_reference", "tool_name": str(text)}:
            return text
        case {"text": str(text)}:
            return text
        case {"source": {"type": "text", "data": str(text)} | {"type": "content", "content": str(text)}}:
            return text
        case {"content": [*inner]} | {"source": {"content": [*inner]}} if inner:
            texts = [each["text"] for each in inner if isinstance(each, dict) and isinstance(each.get("text"), str)]
            titles = [part[name] for name in ("title", "source") if isinstance(part.get(name), str)]
            return "\n".join([*titles, *texts]) if len(texts) == len(inner) else None
    return None


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

    def text(self, place: str) -> str:
        """Return the message's text; raises InvalidRequest for what is not text, but in the result of a tool."""
        if isinstance(self.content, str):
            return self.content
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
    chat = common_pb2.Chat(
        messages=[message.as_message(f"messages[{index}]") for index, message in enumerate(messages)],
        add_generation_prompt=add_generation_prompt,
        continue_final_message=bool(continue_final_message),
        tools=tools,
        tool_choice=tool_choice,
    )
    if wishes:
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
