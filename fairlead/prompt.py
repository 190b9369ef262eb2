"""Prompts as applications write them: text, token ids or chat messages."""

from collections.abc import Mapping, Sequence

from fairlead.blocks import pack_ids
from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2

Message = Mapping[str, str] | tuple[str, str]


def as_prompt(prompt: str | Sequence[int]) -> common_pb2.Prompt:
    """Text, or the token ids themselves."""
    if isinstance(prompt, str):
        return common_pb2.Prompt(text=prompt)
    return common_pb2.Prompt(token_ids=common_pb2.TokenIds(packed=pack_ids(prompt)))


def as_chat(messages: Sequence[Message]) -> common_pb2.Prompt:
    """Messages as mappings with `role` and `content`, or as pairs; raises InvalidRequest for anything else."""
    chat = common_pb2.Chat()
    for index, message in enumerate(messages):
        pair = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else message
        if len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise InvalidRequest(f"must have a role and a content, got {message!r}", f"messages[{index}]")
        chat.messages.add(role=pair[0], content=pair[1])
    return common_pb2.Prompt(chat=chat)
