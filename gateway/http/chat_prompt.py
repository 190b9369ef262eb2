"""Chats of OpenAI's API as prompts."""

from collections.abc import Sequence
from typing import Any

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.prompt import as_template_kwargs
from fairlead.v1 import common_pb2
from gateway.chat_template import MAX_BYTES
from gateway.http.content import Content, text_of

ROLES = {"developer": "system"}  # another name for it


class Message(msgspec.Struct):
    """A message of the conversation; its author's name is ignored."""

    role: str
    content: Content = None
    tool_calls: Any = None
    function_call: Any = None

    def text(self, place: str) -> str:
        """Return the message's text; raises InvalidRequest for what is not text."""
        for name in ("tool_calls", "function_call"):
            if getattr(self, name):
                raise InvalidRequest("this parameter is not supported yet", f"{place}.{name}")
        return text_of(self.content, f"{place}.content")


def chat_prompt(
    messages: Sequence[Message],
    add_generation_prompt: bool | None,
    continue_final_message: bool | None,
    chat_template_kwargs: dict[str, Any] | None,
) -> common_pb2.Prompt:
    """Return `messages` as a prompt; the other parameters say how it is rendered, as those of vLLM.

    Raises InvalidRequest for what is not text, and for variables of the template that are too large.
    """
    turns = [
        common_pb2.ChatMessage(role=ROLES.get(message.role, message.role), content=message.text(f"messages[{index}]"))
        for index, message in enumerate(messages)
    ]
    chat = common_pb2.Chat(
        messages=turns,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=bool(continue_final_message),
    )
    if chat_template_kwargs:
        _check_size(chat_template_kwargs)
        chat.chat_template_kwargs.CopyFrom(as_template_kwargs(chat_template_kwargs))
    return common_pb2.Prompt(chat=chat)


def _check_size(chat_template_kwargs: dict[str, Any]) -> None:
    """Raise InvalidRequest for variables that are too large, before a message is made of them, which takes long."""
    try:
        size = len(msgspec.json.encode(chat_template_kwargs))
    except RecursionError:
        raise InvalidRequest("nested too deeply", "chat_template_kwargs") from None
    if size > MAX_BYTES:
        raise InvalidRequest(f"at most {MAX_BYTES} bytes, got {size}", "chat_template_kwargs")
