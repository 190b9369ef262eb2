"""Conversion of prompts and sampling parameters from the application's values to messages."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from google.protobuf import struct_pb2
from google.protobuf.descriptor import FieldDescriptor

from fairlead.errors import InvalidRequest
from fairlead.options import CallOptions, ChatOptions, SamplingOptions
from fairlead.token_ids import pack_ids
from fairlead.tools import Tool
from fairlead.v1 import common_pb2

# `role` and `content` or a pair of both; an assistant's mapping may have `tool_calls`, a tool's has `tool_call_id`.
Message = Mapping[str, Any] | tuple[str, str]
LARGEST = {FieldDescriptor.TYPE_UINT32: 2**32 - 1, FieldDescriptor.TYPE_UINT64: 2**64 - 1}

REQUIRED = "required"
CONSTRAINTS = [field.name for field in common_pb2.SamplingParams.DESCRIPTOR.oneofs_by_name["constraint"].fields]


def as_text(text: str, field: str) -> str:
    """Return `text`; raise InvalidRequest when UTF-8 cannot encode it, as when it was read from other bytes."""
    try:
        str.encode(text)
    except UnicodeEncodeError as error:
        character = text[error.start]
        raise InvalidRequest(f"must be UTF-8, but character {error.start} is {character!r}", field) from error
    return text


def as_prompt(prompt: str | Sequence[int]) -> common_pb2.Prompt:
    """Convert a text or a sequence of token ids."""
    if isinstance(prompt, str):
        return common_pb2.Prompt(text=as_text(prompt, "prompt"))
    return common_pb2.Prompt(token_ids=common_pb2.TokenIds(packed=pack_ids(prompt)))


def as_chat(messages: Sequence[Message], options: ChatOptions) -> tuple[common_pb2.Prompt, CallOptions]:
    """Convert messages and tools; return also the options of the call itself.

    Raise InvalidRequest for anything else, and for schemas and variables of the chat template that are not JSON.
    """
    chat, rest = common_pb2.Chat(), dict(options)
    chat.continue_final_message = bool(rest.pop("continue_final_message", False))
    if (add_generation_prompt := rest.pop("add_generation_prompt", None)) is not None:
        chat.add_generation_prompt = bool(add_generation_prompt)
    if chat_template_kwargs := rest.pop("chat_template_kwargs", None):
        chat.chat_template_kwargs.CopyFrom(as_template_kwargs(cast("Mapping[str, Any]", chat_template_kwargs)))
    for index, tool in enumerate(cast("Sequence[Tool]", rest.pop("tools", None) or ())):
        try:
            parameters = json.dumps(tool.parameters)
            chat.tools.add(name=tool.name, description=tool.description, parameters=parameters, strict=tool.strict)
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"must be a Tool with a JSON schema: {error}", f"tools[{index}]") from error
    choice = rest.pop("tool_choice", None)
    if choice is not None and not isinstance(choice, str):
        raise InvalidRequest(f"must be the name of a tool, or 'required', got {choice!r}", "tool_choice")
    if choice:
        chat.tool_choice.required = choice == REQUIRED
        chat.tool_choice.name = "" if choice == REQUIRED else as_text(choice, "tool_choice")
    if rest.pop("parallel_tool_calls", None) is False:
        chat.tool_choice.single = True
    for index, message in enumerate(messages):
        chat.messages.append(_as_message(message, f"messages[{index}]"))
    return common_pb2.Prompt(chat=chat), cast("CallOptions", rest)


def _as_message(message: Message, place: str) -> common_pb2.ChatMessage:
    pair = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else message
    if len(pair) != 2 or not all(isinstance(part, str) for part in pair):
        raise InvalidRequest(f"must have a role and a content, got {message!r}", place)
    converted = common_pb2.ChatMessage(role=as_text(str(pair[0]), place), content=as_text(str(pair[1]), place))
    if not isinstance(message, Mapping):
        return converted
    try:
        converted.tool_call_id = message.get("tool_call_id") or ""
        for call in message.get("tool_calls") or ():
            converted.tool_calls.add(id=call.id, name=call.name, arguments=call.arguments)
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidRequest(f"tool_calls are values of ToolCall, and tool_call_id is text: {error}", place) from error
    return converted


def as_template_kwargs(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Convert variables of a chat template; raise InvalidRequest for what is not JSON or nested too deeply."""
    struct = struct_pb2.Struct()
    try:
        struct.update(values)
    except RecursionError:
        raise InvalidRequest("nested too deeply", "chat_template_kwargs") from None
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"must be a JSON object: {error}", "chat_template_kwargs") from error
    return struct


def as_sampling(options: SamplingOptions) -> common_pb2.SamplingParams:
    """Convert options, named as in common.proto; None means absent, and `stop` may be a single string.

    Raise TypeError for an unknown name, InvalidRequest for a value that does not fit its field, and for two constraints
    of the output.
    """
    message = common_pb2.SamplingParams()
    for name, value in options.items():
        if name not in message.DESCRIPTOR.fields_by_name:
            raise TypeError(f"unknown option {name!r}; sampling has {', '.join(message.DESCRIPTOR.fields_by_name)}")
        if value is None:
            continue
        if name in CONSTRAINTS and (other := message.WhichOneof("constraint")):
            raise InvalidRequest(f"not together with {other}: an output has one constraint", f"sampling.{name}")
        try:
            _set(message, name, value)
        except (AttributeError, TypeError, ValueError) as error:
            largest = LARGEST.get(message.DESCRIPTOR.fields_by_name[name].type)
            is_range = isinstance(error, ValueError) and largest is not None  # protobuf does not name the range
            problem = f"must be between 0 and {largest}" if is_range else str(error)
            raise InvalidRequest(f"{problem}, got {value!r}", f"sampling.{name}") from error
    return message


def _set(message: common_pb2.SamplingParams, name: str, value: Any) -> None:
    if name == "choice":
        message.choice.texts.extend([value] if isinstance(value, str) else value)
    elif name == "json_schema":
        message.json_schema = value if isinstance(value, str) else _as_json(value)
    elif isinstance(value, Mapping):
        getattr(message, name).update(value)
    elif message.DESCRIPTOR.fields_by_name[name].is_repeated:
        getattr(message, name).extend([value] if isinstance(value, str) else value)
    else:
        setattr(message, name, value)


def _as_json(schema: Mapping[str, Any] | bool) -> str:
    try:
        return json.dumps(schema)
    except RecursionError:
        raise InvalidRequest("nested too deeply", "sampling.json_schema") from None
