"""A chat in the form in which chat templates, and engines with OpenAI's API, expect it."""

from collections.abc import Mapping
from typing import Any

from local_worker.prompt import Chat, ChatMessage, EarlierCall


def turns_of(chat: Chat) -> list[dict[str, Any]]:
    """Return the messages. A tool's result names the tool, if an earlier message has the call."""
    names = {call.id: call.name for message in chat.messages for call in message.tool_calls}
    return [_turn(message, names) for message in chat.messages]


def tools_of(chat: Chat) -> list[dict[str, Any]] | None:
    """Return the tools, None if there are none: templates ask only whether they are given any."""
    return [{"type": "function", "function": dict(tool)} for tool in chat.tools] or None


def _turn(message: ChatMessage, names: Mapping[str, str]) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        turn["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id:
        turn["tool_call_id"] = message.tool_call_id
    if message.tool_call_id in names:
        turn["name"] = names[message.tool_call_id]
    return turn


def _call(call: EarlierCall) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call.arguments, str) else dict(call.arguments)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
