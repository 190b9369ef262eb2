"""Tools for models whose chat template knows none: they are described in a message, and calls are text of messages.

The notation is that of Hermes, which many models have seen and which needs no tokens of its own.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

from local_worker.prompt import Chat, ChatMessage, EarlierCall

FORMAT = "hermes"
SYSTEM, USER, TOOL = "system", "user", "tool"
DESCRIPTION = """You can call functions. Each of these lines describes one of them:
{tools}

To call a function, write this, and nothing after the last call:
<tool_call>
{{"name": "its name", "arguments": {{"name of an argument": "its value"}}}}
</tool_call>
Its result follows between <tool_response> and </tool_response>."""


def has_calls(chat: Chat) -> bool:
    return chat.needs_calls or any(message.role == TOOL for message in chat.messages)


def with_written_calls(chat: Chat) -> Chat:
    """Return `chat` for a template that renders roles and contents alone.

    The tools stand in the first message, be it of the system or of the user, since some templates have no system.
    """
    messages = tuple(_joined(_written(message) for message in chat.messages))
    if chat.tools:
        tools = "\n".join(json.dumps(dict(tool), ensure_ascii=False) for tool in chat.tools)
        messages = _described(messages, DESCRIPTION.format(tools=tools))
    return replace(chat, messages=messages, tools=())


def _described(messages: tuple[ChatMessage, ...], text: str) -> tuple[ChatMessage, ...]:
    if messages and messages[0].role == SYSTEM:
        return (messages[0]._replace(content=f"{messages[0].content}\n\n{text}"), *messages[1:])
    if messages and messages[0].role == USER:
        return (messages[0]._replace(content=f"{text}\n\n{messages[0].content}"), *messages[1:])
    return (ChatMessage(SYSTEM, text), *messages)


def _written(message: ChatMessage) -> ChatMessage:
    if message.role == TOOL:
        return ChatMessage(TOOL, f"<tool_response>\n{message.content}\n</tool_response>")
    calls = [f"<tool_call>\n{_call(call)}\n</tool_call>" for call in message.tool_calls]
    return ChatMessage(message.role, "\n".join([*([message.content] if message.content else []), *calls]))


def _call(call: EarlierCall) -> str:
    arguments = (
        call.arguments if isinstance(call.arguments, str) else json.dumps(dict(call.arguments), ensure_ascii=False)
    )
    return f'{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {arguments}}}'


def _joined(messages: Iterable[ChatMessage]) -> Iterator[ChatMessage]:
    """Yield the messages, where results and what the user says after them are one turn of the user."""
    turn: list[str] = []
    for message in messages:
        if message.role == TOOL or (turn and message.role == USER):
            turn.append(message.content)
            continue
        if turn:
            yield ChatMessage(USER, "\n".join(turn))
            turn = []
        yield message
    if turn:
        yield ChatMessage(USER, "\n".join(turn))
