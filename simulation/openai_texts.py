"""The text of requests and answers: chat completions, completions, responses, and Anthropic's messages."""

import json
from collections.abc import Iterator

from fairlead.token_ids import pack_ids
from simulation.json_fields import Fields, part, parts, shown

TOKENS = 1 << 32


def prompt_text(request: Fields) -> str:
    """Return the text of all prompts of a request; token ids become four characters each."""
    pieces = [f"<system>{request['instructions']}"] if request.get("instructions") else []
    pieces += [f"<system>{_content({'content': request['system']})}"] if request.get("system") else []
    pieces += _prompts(request.get("prompt"))
    messages = request.get("messages") or request.get("input")
    if isinstance(messages, str):
        return "".join([*pieces, messages])
    chat = {"messages": messages}
    return "".join([*pieces, *(f"<{message.get('role')}>{_content(message)}" for message in parts(chat, "messages"))])


def answer_text(reply: Fields) -> str:
    """Return the text of all choices, of all output items, or of the message."""
    pieces = [str(choice.get("text") or _content(part(choice, "message"))) for choice in parts(reply, "choices")]
    pieces += [_content(item) for item in parts(reply, "output")]
    pieces += [_content(reply)]
    return "".join(pieces)


def _prompts(prompt: object) -> Iterator[str]:
    if isinstance(prompt, str):
        yield prompt
    elif isinstance(prompt, list):
        if prompt and all(isinstance(token, int) and 0 <= token < TOKENS for token in prompt):
            yield pack_ids(prompt).decode("latin-1")
            return
        for one in prompt:
            yield from _prompts(one)
    elif prompt is not None:
        raise ValueError(f"prompt: {shown(prompt)} is neither text nor a list")


def _content(message: Fields) -> str:
    """Return the text of a message or an item, and the arguments of its tool calls."""
    content = message.get("content") or ""
    pieces = [content] if isinstance(content, str) else [_piece(piece) for piece in parts(message, "content")]
    calls = [message, *(part(call, "function") for call in parts(message, "tool_calls"))]
    return "".join([*pieces, *(str(call.get("arguments") or "") for call in calls)])


def _piece(piece: Fields) -> str:
    return str(piece.get("text") or "") + (json.dumps(piece["input"]) if piece.get("input") else "")
