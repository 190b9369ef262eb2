"""Of a body little is kept while its calls go on: what its answer needs."""

import json
from collections.abc import Callable

import msgspec
import pytest

from gateway.http.chat_completions import ChatCompletionRequest, chat_completions
from gateway.http.completions import CompletionRequest, completions
from gateway.http.messages import MessagesRequest, messages

LONG = "x" * 2000
SCHEMA = {"type": "object", "description": LONG}
FUNCTION = {"type": "function", "function": {"name": "f", "description": LONG, "parameters": SCHEMA}}
CUSTOM = {"type": "custom", "custom": {"name": "g", "description": LONG}}
ANYWHERE = {
    "metadata": [LONG],
    "prompt_cache_key": LONG,
    "service_tier": [LONG],
    "thinking": {"x": LONG},
    "think": LONG,
}
REASONING = [{"type": "text", "text": "hello"}, {"type": "reasoning", "text": LONG}]
KEPT = 2000  # bytes


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (chat_completions, {"messages": [{"role": "user", "content": LONG}], "tools": [FUNCTION, CUSTOM], **ANYWHERE}),
        (chat_completions, {"messages": [{"role": "assistant", "content": REASONING}], "echo": True, **ANYWHERE}),
        (chat_completions, {"messages": [{"role": "user", "content": LONG}], "tool_choice": {"x": LONG}}),
        (chat_completions, {"messages": []}),
        (completions, {"prompt": [LONG, LONG], **ANYWHERE}),
        (
            messages,
            {
                "max_tokens": 1,
                "messages": [{"role": "user", "content": [{"type": "text", "text": LONG}]}],
                "system": LONG,
                "tools": [{"name": "f", "input_schema": SCHEMA}],
                "metadata": [LONG],
                "cache_control": LONG,
                "betas": [LONG],
            },
        ),
    ],
)
def test_a_request_forgets_what_its_answer_does_not_need(
    read: Callable[[bytes], ChatCompletionRequest | CompletionRequest | MessagesRequest], body: dict[str, object]
) -> None:
    asked = read(json.dumps(body).encode())
    asked.forget()
    assert len(msgspec.json.encode(asked)) < KEPT
