"""The first requests of agents with their defaults are answered, and what was left out of them is told.

The bodies are written as the programs send them, shortened.
"""

import json
from typing import Any

import pytest

from tests.unit.gateway.http.http_client import CHAT, COUNT, HELLO, MESSAGES, RESPONSES, TEXT, Answer, HttpClient

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
IN_CHATS = "reasoning_effort, verbosity, web_search_options, tools[0], store, prediction, ?"


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
def test_requests_of_agents_are_answered(
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
def test_a_call_with_broken_arguments_is_accepted_in_the_next_request(http: HttpClient, arguments: Any) -> None:
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


SERVERS = [
    {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": [{"name": "a"}]},
    {"type": "mcp_call", "id": "m", "server_label": "s", "name": "a", "arguments": "{}", "output": "x"},
    {"type": "mcp_approval_request", "id": "m", "server_label": "s", "name": "a", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True},
    {"type": "image_generation_call", "id": "i", "result": "aGk=", "status": "completed"},
    {"type": "file_search_call", "id": "f", "queries": ["x"], "results": None},
    {"type": "code_interpreter_call", "id": "c", "code": "1", "container_id": "x", "outputs": []},
    {"type": "tool_search_call", "id": "t", "call_id": None, "execution": "server", "arguments": {}},
    {"type": "tool_search_output", "id": "t", "call_id": None, "execution": "server", "tools": []},
    {"type": "something_of_next_year", "id": "s"},
]
PATCH = {"type": "update_file", "path": "a", "diff": "d"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
CALLERS: list[tuple[dict[str, Any], dict[str, Any], str]] = [  # a call, its result, and what the model is told of it
    ({"type": "tool_search_call", "arguments": {"q": 1}}, {"type": "tool_search_output", "tools": []}, "[]"),
    (
        {"type": "tool_search_call", "arguments": {"q": 1}},
        {"type": "tool_search_output", "tools": [{"type": "function", "name": "f"}]},
        '{"type":"function","name":"f"}',
    ),
    ({"type": "apply_patch_call", "operation": PATCH}, {"type": "apply_patch_call_output", "output": "ok"}, "ok"),
    (
        {"type": "shell_call", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "output": [{"stdout": "a", "outcome": {"type": "exit"}}]},
        '[{"stdout":"a","outcome":{"type":"exit"}}]',
    ),
    (
        {"type": "computer_call", "action": {"type": "screenshot"}},
        {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": "data:..."}},
        "[computer_screenshot]",
    ),
    ({"type": "next_call"}, {"type": "next_call_output", "output": {"a": [1]}}, '{"a":[1]}'),
    ({"type": "function_call", "name": "f"}, {"type": "function_call_output", "output": [IMAGE]}, "[input_image]"),
]


def length(http: HttpClient, items: list[Any], **fields: Any) -> int:
    answer = http.post(RESPONSES, {"input": items, "max_output_tokens": 2, **fields})
    assert answer.status == 200, answer.body
    return int(answer.json["usage"]["input_tokens"])


@pytest.mark.parametrize("item", SERVERS, ids=lambda item: item["type"])
def test_items_made_by_other_servers_are_left_out(http: HttpClient, item: dict[str, Any]) -> None:
    assert ignored(http.post(RESPONSES, {"input": [*HELLO, item], "max_output_tokens": 2})) == "input[1]"
    assert length(http, [*HELLO, item]) == length(http, HELLO)


@pytest.mark.parametrize(("call", "result", "told"), CALLERS)
def test_the_answer_of_a_callers_tool_reaches_the_model(
    http: HttpClient, call: dict[str, Any], result: dict[str, Any], told: str
) -> None:
    items = [*HELLO, {"call_id": "c", **call}, {"call_id": "c", **result}]
    plain = {"type": "function_call_output", "call_id": "c", "output": told}
    assert length(http, items) == length(http, [*items[:-1], plain])
    assert length(http, items, tools=[{"type": "function", "name": "f"}]) > length(http, items[:-1])


DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "wet"}, "title": "w"}
FOUND = {"type": "search_result", "source": "u", "title": "t", "content": [{"type": "text", "text": "wet"}]}
RESULTS: list[tuple[Any, str, str]] = [
    ([{"type": "text", "text": "wet"}], "wet", ""),
    ([DOCUMENT], "wet", ""),
    ([FOUND], "t\nu\nwet", ""),
    ([{"type": "tool_reference", "tool_name": "wet"}], "wet", ""),
    ([{"type": "next", "value": 1}], '{"type":"next","value":1}', ""),
    ([{"type": "image", "source": {"type": "base64", "data": "aGk="}}], "[image]", "[0]"),
    (
        [{"type": "text", "text": "a"}, {"type": "document", "source": {"type": "url", "url": "u"}}],
        "a\n[document]",
        "[1]",
    ),
    ({"a": 1}, '{"a":1}', ""),
    ([], "[]", ""),
]


@pytest.mark.parametrize(("content", "told", "left_out"), RESULTS)
def test_any_result_of_a_tool_reaches_the_model(http: HttpClient, content: Any, told: str, left_out: str) -> None:
    """A program cannot take back what its tool has answered: a 400 would come at each later turn, too."""

    def asked(result: Any) -> Answer:
        block = {"type": "tool_result", "tool_use_id": "c", "content": result}
        call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
        messages = [*HELLO, call, {"role": "user", "content": [block]}]
        return http.post(MESSAGES, {"messages": messages, "max_tokens": 2})

    assert ignored(asked(content)) == (f"messages[2].content[0].content{left_out}" if left_out else "")
    assert asked(content).json["usage"] == asked(told).json["usage"]


def test_the_result_of_a_tool_in_a_chat_may_be_an_image(http: HttpClient) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    result = {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "seen"}, image]}
    answer = http.chat(messages=[*HELLO, {"role": "assistant", "tool_calls": [call]}, result])
    assert ignored(answer) == "messages[2].content[1]"


FUNCTIONS = [{"name": name, "parameters": {"type": "object"}} for name in ("f", "g")]
TOOLS_OF: dict[str, list[Any]] = {
    CHAT: [{"type": "function", "function": function} for function in FUNCTIONS],
    RESPONSES: [{"type": "function", **function} for function in FUNCTIONS],
}


def allowing(path: str, mode: str, *names: str) -> dict[str, Any]:
    """Return the choice of those tools, as each API writes it."""
    if path == RESPONSES:
        listed = [{"type": "function", "name": name} for name in names]
        return {"type": "allowed_tools", "mode": mode, "tools": [*listed, {"type": "image_generation"}]}
    named = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_some_of_the_tools_may_be_called(http: HttpClient, path: str) -> None:
    asked = {CHAT: "messages", RESPONSES: "input"}[path]
    body = {asked: HELLO, "tools": TOOLS_OF[path], "temperature": 0}

    def tokens(choice: Any, tools: list[Any]) -> int:
        usage = http.post(path, {**body, "tools": tools, "tool_choice": choice}).json["usage"]
        return int(usage.get("input_tokens") or usage["prompt_tokens"])

    assert tokens(allowing(path, "auto", "g"), TOOLS_OF[path]) == tokens("auto", TOOLS_OF[path][1:])
    forced = http.post(path, {**body, "tool_choice": allowing(path, "required", "g")})
    assert b'"name":"g"' in forced.body.replace(b'"name": "g"', b'"name":"g"')
    for wrong in (allowing(path, "auto", "h"), allowing(path, "perhaps", "f"), {"type": "allowed_tools"}):
        refused = http.post(path, {**body, "tool_choice": wrong})
        assert (refused.status, refused.json["error"]["param"]) == (400, "tool_choice")
    assert http.post(path, {**body, "tool_choice": allowing(path, "required")}).status == 400


def test_a_place_is_a_wish(http: HttpClient) -> None:
    answer = http.post(MESSAGES, {"messages": HELLO, "max_tokens": 2, "inference_geo": "us"})
    assert ignored(answer) == "inference_geo"


@pytest.mark.parametrize("most", [2**31 - 1, 2**32, 2**53 - 1, 2**63 - 1, 10**30])
def test_the_largest_integer_of_a_language_is_a_maximum(http: HttpClient, most: int) -> None:
    last = {"type": "json_schema", "name": "n", "schema": {"enum": [1]}}
    form = {"type": "json_schema", "json_schema": last}
    asked: list[tuple[str, dict[str, Any]]] = [
        (CHAT, {"messages": HELLO, "max_tokens": most, "response_format": form}),
        (CHAT, {"messages": HELLO, "max_completion_tokens": most, "response_format": form}),
        (TEXT, {"prompt": "hi", "max_tokens": most, "response_format": form}),
        (RESPONSES, {"input": "hi", "max_output_tokens": most, "text": {"format": last}}),
        (
            MESSAGES,
            {
                "messages": HELLO,
                "max_tokens": most,
                "output_config": {"format": {"type": "json_schema", "schema": {"enum": [1]}}},
                "thinking": {"type": "enabled", "budget_tokens": most},
            },
        ),
    ]
    for path, body in asked:
        answer = http.post(path, body)
        assert answer.status == 200, answer.body


def test_a_message_may_have_the_texts_of_other_apis_and_earlier_reasoning(http: HttpClient) -> None:
    """Programs that change the provider within a conversation send what the former one has answered."""
    thoughts = [{"type": "thinking", "thinking": "Hm."}, {"type": "reasoning", "text": "Hm."}]
    for kind in ("text", "output_text"):
        said = {"role": "assistant", "content": [*thoughts, {"type": kind, "text": "wet"}]}
        plain = {"role": "assistant", "content": "wet"}
        chats = [http.chat(messages=[*HELLO, each, *HELLO]) for each in (said, plain)]
        assert [answer.status for answer in chats] == [200, 200], chats[0].body
        assert chats[0].json["usage"]["prompt_tokens"] == chats[1].json["usage"]["prompt_tokens"]
        assert length(http, [*HELLO, said, *HELLO]) == length(http, [*HELLO, plain, *HELLO])


def test_blocks_with_a_text_are_read_and_those_of_other_servers_left_out(http: HttpClient) -> None:
    def asked(*messages: Any) -> Answer:
        return http.post(MESSAGES, {"messages": list(messages), "max_tokens": 2})

    def tokens(answer: Answer) -> int:
        usage = answer.json["usage"]
        return int(usage["input_tokens"] + usage["cache_read_input_tokens"])

    def said(role: str, *blocks: Any) -> Any:
        return {"role": role, "content": list(blocks)}

    text = {"type": "text", "text": "wet"}
    plain = tokens(asked(said("user", text), said("assistant", text), *HELLO))
    for block in (DOCUMENT, {"type": "search_result", "content": [text]}):
        assert tokens(asked(said("user", block), said("assistant", text), *HELLO)) == plain
    compaction = {"type": "compaction", "content": "wet"}
    assert tokens(asked(said("user", text), said("assistant", compaction), *HELLO)) == plain
    upload = {"type": "container_upload", "file_id": "f"}
    answer = asked(said("user", text, upload), said("assistant", text, {"type": "of_next_year"}), *HELLO)
    assert tokens(answer) == plain
    assert ignored(answer) == "messages[0].content[1], messages[1].content[1]"


def test_a_long_name_that_a_model_wrote_is_taken_back(http: HttpClient) -> None:
    """A call is told whatever its name is, so that it may be sent again; a tool's name has the usual limit."""
    call = {"id": "c", "type": "function", "function": {"name": "f" * 500, "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c", "content": "no such tool"}
    assert http.chat(messages=[*HELLO, said, result]).status == 200
    assert http.chat(tools=[{"type": "function", "function": {"name": "f" * 129}}]).status == 400
