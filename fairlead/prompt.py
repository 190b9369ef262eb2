"""Conversion of prompts and sampling parameters from the application's values to messages."""

from collections.abc import Mapping, Sequence

from google.protobuf.descriptor import FieldDescriptor

from fairlead.errors import InvalidRequest
from fairlead.options import SamplingOptions
from fairlead.token_ids import pack_ids
from fairlead.v1 import common_pb2

Message = Mapping[str, str] | tuple[str, str]
LARGEST = {FieldDescriptor.TYPE_UINT32: 2**32 - 1, FieldDescriptor.TYPE_UINT64: 2**64 - 1}


def as_prompt(prompt: str | Sequence[int]) -> common_pb2.Prompt:
    """Convert a text or a sequence of token ids."""
    if isinstance(prompt, str):
        return common_pb2.Prompt(text=prompt)
    return common_pb2.Prompt(token_ids=common_pb2.TokenIds(packed=pack_ids(prompt)))


def as_chat(messages: Sequence[Message]) -> common_pb2.Prompt:
    """Convert messages, each a mapping with `role` and `content` or a pair; raise InvalidRequest for anything else."""
    chat = common_pb2.Chat()
    for index, message in enumerate(messages):
        pair = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else message
        if len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise InvalidRequest(f"must have a role and a content, got {message!r}", f"messages[{index}]")
        chat.messages.add(role=pair[0], content=pair[1])
    return common_pb2.Prompt(chat=chat)


def as_sampling(options: SamplingOptions) -> common_pb2.SamplingParams:
    """Convert options, named as in common.proto; None means absent, and `stop` may be a single string.

    Raise TypeError for an unknown name, InvalidRequest for a value that does not fit its field.
    """
    message = common_pb2.SamplingParams()
    for name, value in options.items():
        if name not in message.DESCRIPTOR.fields_by_name:
            raise TypeError(f"unknown option {name!r}; sampling has {', '.join(message.DESCRIPTOR.fields_by_name)}")
        if value is None:
            continue
        try:
            if message.DESCRIPTOR.fields_by_name[name].is_repeated:
                getattr(message, name).extend([value] if isinstance(value, str) else value)
            else:
                setattr(message, name, value)
        except (TypeError, ValueError) as error:
            largest = LARGEST.get(message.DESCRIPTOR.fields_by_name[name].type)
            is_range = isinstance(error, ValueError) and largest is not None  # protobuf does not name the range
            problem = f"must be between 0 and {largest}" if is_range else str(error)
            raise InvalidRequest(f"{problem}, got {value!r}", f"sampling.{name}") from error
    return message
