"""The first requests of agents with their defaults are answered, and what was left out of them is told.

The bodies are written as the programs send them, shortened.
"""

import json
from typing import Any

import pytest

from tests.gateway.http.conftest import serving
from tests.gateway.http.http_client import CHAT, COUNT, HELLO, MESSAGES, RESPONSES, Answer, HttpClient
from tests.services import Stack

EPHEMERAL = {"cache_control": {"type": "ephemeral", "ttl": "1h", "scope": "global"}}
CLAUDE_CODE = {
    "model": "tiny",
    "max_tokens": 32000,
    "stream": True,
    "system": [{"type": "text", "text": "You are an agent.", **EPHEMERAL}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "List the files.", **EPHEMERAL}]},
        {"role": "system", "content": [{"type": "text", "text": "Today is Thursday."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "ls"}},
                {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
                {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}, **EPHEMERAL},
                {"type": "tool_use", "id": "toolu_2", "name": "ToolSearch", "input": {"query": "fetch"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt", "is_error": False},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": [{"type": "tool_reference", "tool_name": "Fetch"}],
                },
            ],
        },
        {"role": "system", "content": "Answer briefly."},
    ],
    "tools": [
        {"name": "Bash", "description": "Run.", "input_schema": {"type": "object"}, "eager_input_streaming": True},
        {"name": "Fetch", "input_schema": {"type": "object"}, "defer_loading": True},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        {"type": "mcp_toolset", "mcp_server_name": "files"},
    ],
    "thinking": {"type": "adaptive"},
    "context_management": {
        "edits": [{"type": "clear_thinking_20251015", "keep": "all"}, {"type": "clear_tool_uses_1"}]
    },
    "output_config": {"effort": "high", "task_budget": {"type": "tokens", "total": 9}},
    "metadata": {"user_id": "user_1_account__session_2"},
    "betas": ["claude-code-20250219"],
    "service_tier": "auto",
    "mcp_servers": [],
}
CODEX = {
    "model": "tiny",
    "instructions": "You are an agent.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Sandbox: off."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": None},
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "ls"}},
        {
            "type": "custom_tool_call",
            "call_id": "c1",
            "name": "apply_patch",
            "input": "*** Begin",
            "status": "completed",
        },
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
        {"type": "local_shell_call", "call_id": "c2", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "c2", "output": "a.txt"},
        {"type": "function_call", "call_id": "c3", "namespace": "mcp__git", "name": "log", "arguments": "{}"},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "x", "tools": []},
        {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}},
        {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": [{"type": "function"}]},
        {"type": "tool_search_call", "call_id": "c4", "execution": "client", "arguments": {"query": "x"}},
        {"type": "tool_search_output", "call_id": "c4", "execution": "client", "tools": [{"type": "function"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"type": "function_call_output", "call_id": "c3", "output": [{"type": "input_text", "text": "none"}]},
    ],
    "tools": [
        {"type": "function", "name": "shell", "strict": False, "parameters": {"type": "object"}, "defer_loading": True},
        {
            "type": "custom",
            "name": "apply_patch",
            "format": {"type": "grammar", "syntax": "lark", "definition": "s: x"},
        },
        {"type": "namespace", "name": "mcp__git", "tools": [{"type": "function", "name": "log"}, {"type": "mcp"}]},
        {"type": "web_search", "external_web_access": True},
        {"type": "local_shell"},
        {"type": "image_generation", "output_format": "png"},
        {"type": "tool_search", "execution": "client"},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto", "context": None},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "5b1f",
    "text": {"verbosity": "medium"},
    "client_metadata": {"x": "y"},
    "truncation": "auto",
}
CHATS = {
    "messages": HELLO,
    "max_tokens": 32000,
    "reasoning_effort": "medium",
    "verbosity": "low",
    "web_search_options": {},
    "store": True,
    "prediction": {"type": "content", "content": "x"},
    "service_tier": "flex",
    "tools": [{"type": "web_search"}, {"type": "function", "function": {"name": "f", "parameters": None}}],
    "tool_choice": "auto",
    "parallel_tool_calls": None,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "unheard of": {"a": 1},
}
NOTHING = {"input": "hi", "reasoning": {"effort": None, "summary": None}, "include": None, "truncation": "disabled"}
IN_CLAUDE_CODE = (
    "output_config.effort, thinking, context_management.edits[1], tools[2], tools[3], messages[2].content[1], "
    "messages[2].content[2], output_config.task_budget"
)
IN_CODEX = (
    "reasoning.effort, text.verbosity, truncation, tools[2].tools[1], tools[3], tools[4], tools[5], tools[6], "
    "input[3], input[9], input[10], input[11], client_metadata"
)
IN_CHATS = "reasoning_effort, verbosity, web_search_options, tools[0], store, prediction, service_tier, ?"


def ignored(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    return answer.headers.get("x-fairlead-ignored", "")


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (MESSAGES, CLAUDE_CODE, IN_CLAUDE_CODE),
        (f"{MESSAGES}?beta=true", CLAUDE_CODE, IN_CLAUDE_CODE),
        (RESPONSES, CODEX, IN_CODEX),
        (CHAT, CHATS, IN_CHATS),
        (RESPONSES, NOTHING, ""),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_agents_send_is_answered(
    http: HttpClient, path: str, body: dict[str, Any], expected: str, stream: bool
) -> None:
    assert ignored(http.post(path, {**body, "stream": stream})) == expected


def test_a_conversation_of_an_agent_is_counted(http: HttpClient) -> None:
    fewer = {**CLAUDE_CODE, "messages": CLAUDE_CODE["messages"][:4]}  # type: ignore[index]
    counts = [http.post(COUNT, body).json["input_tokens"] for body in (fewer, CLAUDE_CODE)]
    assert counts[1] - counts[0] == len("system: Answer briefly.\n")


def test_the_header_is_of_bounded_length(http: HttpClient) -> None:
    told = ignored(http.chat(tools=[{"type": "web_search"}] * 100, **{f"unheard_of_{n}": 1 for n in range(500)}))
    assert told.startswith("tools[0], tools[1], ")
    assert told.endswith(", ...")
    assert len(told) < 1100


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (RESPONSES, {"tool_choice": {"type": "web_search"}}),
        (RESPONSES, {"tool_choice": {"type": "mcp", "server_label": "x"}}),
        (RESPONSES, {"tool_choice": {"type": "custom", "name": "unknown"}}),
        (RESPONSES, {"tool_choice": "required", "tools": [{"type": "web_search"}]}),
        (CHAT, {"tool_choice": {"type": "web_search"}}),
        (MESSAGES, {"tool_choice": {"type": "tool", "name": "web_search"}}),
    ],
)
def test_a_call_that_cannot_be_made_is_not_promised(http: HttpClient, path: str, fields: dict[str, Any]) -> None:
    body = {RESPONSES: CODEX, CHAT: CHATS, MESSAGES: CLAUDE_CODE}[path]
    answer = http.post(path, {**body, **fields})
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith("tool_choice: ")


@pytest.mark.parametrize(
    "choice", [{"type": "function", "name": "log"}, {"type": "function", "namespace": "mcp__git", "name": "log"}]
)
def test_a_call_in_a_namespace_can_be_required(http: HttpClient, choice: object) -> None:
    [item] = http.post(RESPONSES, {**CODEX, "tool_choice": choice, "stream": False, "temperature": 0}).json["output"]
    assert (item["type"], item["namespace"], item["name"]) == ("function_call", "mcp__git", "log")


def test_a_custom_tool_can_be_required(http: HttpClient) -> None:
    choice = {"type": "custom", "name": "apply_patch"}
    body = {**CODEX, "tool_choice": choice, "stream": False, "seed": 1, "max_output_tokens": 300}
    [item] = http.post(RESPONSES, body).json["output"]
    assert (item["type"], item["name"]) == ("custom_tool_call", "apply_patch")
    assert "input" in item


def test_a_required_call_is_no_text_and_has_no_format(http: HttpClient) -> None:
    """So do programs ask that want an object by a call or by a text, whichever the server knows."""
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "name": "f", "schema": schema}
    function = {"name": "f", "parameters": schema}
    asked: list[tuple[str, dict[str, Any]]] = [
        (
            RESPONSES,
            {
                "input": "hi",
                "tools": [{"type": "function", **function}],
                "tool_choice": {"type": "function", "name": "f"},
                "text": {"format": form},
            },
        ),
        (
            CHAT,
            {
                "messages": HELLO,
                "tools": [{"type": "function", "function": function}],
                "tool_choice": {"type": "function", "function": {"name": "f"}},
                "response_format": {"type": "json_schema", "json_schema": form},
            },
        ),
        (
            MESSAGES,
            {
                "messages": HELLO,
                "max_tokens": 100,
                "tools": [{"name": "f", "input_schema": schema}],
                "tool_choice": {"type": "tool", "name": "f"},
                "output_config": {"format": {"type": "json_schema", "schema": schema}},
            },
        ),
    ]
    for path, body in asked:
        answer = http.post(path, body)
        assert answer.status == 200, answer.body
    [call] = http.post(RESPONSES, asked[0][1]).json["output"]
    assert (call["type"], json.loads(call["arguments"])) == ("function_call", {"a": 1})


ARGUMENTS = [
    '{"path": "/',
    '{"t": "a\nb"}',
    '{"t": "\\ud83d"}',
    "null",
    "[]",
    '"x"',
    "",
    "{}trailing",
    {"a": 1},
    None,
    5,
]


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_what_was_answered_is_taken_back(http: HttpClient, arguments: Any) -> None:
    """A model may err, and an output may end within a call: the conversation goes on."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    chat = [*HELLO, said, {"role": "tool", "tool_call_id": "c", "content": "error"}]
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}
    items = [*HELLO, item, {"type": "function_call_output", "call_id": "c", "output": "error"}]
    block = {"type": "tool_use", "id": "c", "name": "f", "input": arguments}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "error"}]}
    assert http.chat(messages=chat).status == 200
    assert http.post(RESPONSES, {"input": items, "max_output_tokens": 2}).status == 200
    blocks = [*HELLO, {"role": "assistant", "content": [block]}, result]
    assert http.post(MESSAGES, {"messages": blocks, "max_tokens": 2}).status == 200


def test_a_limit_above_the_context_can_be_refused(stack: Stack) -> None:
    stack.worker("a", served_name="tiny")
    gateway, http = serving(stack, excess_max_tokens="refuse")
    gateway.wait_for("ready")
    for path, body, name in (
        (CHAT, {"messages": HELLO}, "max_tokens"),
        (MESSAGES, {"messages": HELLO}, "max_tokens"),
        (RESPONSES, {"input": "hi"}, "max_output_tokens"),
    ):
        answer = http.post(path, {**body, name: 900_000})
        assert answer.status == 400
        assert f"{name}: " in answer.json["error"]["message"]
        assert http.post(path, {**body, name: 1}).status == 200
