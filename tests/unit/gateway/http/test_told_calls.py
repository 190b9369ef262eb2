"""Calls and reasoning as each API tells them, of a model that writes them."""

import json
from collections.abc import Iterator

import pytest

from tests.services import Stack
from tests.unit.gateway.http.clients import run
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import CHAT, MESSAGES, RESPONSES, HttpClient
from tests.unit.gateway.http.scripted_model import TEMPLATE, THOUGHTS, save_scripted_model
from tests.unit.gateway.http.test_openai_client import CLIENT, HEAD

pytestmark = [pytest.mark.e2e, pytest.mark.slow]  # a worker loads torch and transformers

SCRIPTS = {
    "thoughts": THOUGHTS,
    "newline": '<tool_call>\n{"name": "write", "arguments": {"text": "first\nnext"}}\n</tool_call>',
    "custom": '<tool_call>{"name":"patch","arguments":{"input":"*** Begin"}}',
    "spaced": '<tool_call> {"name": "office__mail" , "arguments": { "to": "Ann"} }',
    "loudly": "WITH ALL EFFORT",
    "softly": "hardly any effort",
}
WISHES = (
    TEMPLATE
    + """
{%- if enable_thinking %}thoughts{% endif %}
{%- if reasoning_effort is defined %}
{%- if reasoning_effort not in ("low", "high") %}{{ raise_exception("no such effort") }}{% endif %}
{{- "loudly" if reasoning_effort == "high" else "softly" }}{% endif %}"""
)
PROGRAM = """
def checked(model):
    type(model).model_validate(model.model_dump(), strict=True)
    return model

def asked(word, **fields):
    return {"model": "tiny", "input": word, "tools": tools} | fields

def told(response):
    return [(item.type, item.content[0].text if item.type == "message" else None) for item in response.output]

tools = [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}]
tools += [
    {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}},
    {"type": "namespace", "name": "office", "description": "Work.", "tools": [{"type": "function", "name": "mail"}]},
    {"type": "web_search"},
]
for word, kind, name, namespace in (
    ("custom", "custom_tool_call", "patch", None), ("spaced", "function_call", "mail", "office")
):
    whole = client.responses.create(**asked(word))
    assert [tool.type for tool in whole.tools] == ["function", "custom", "namespace"], whole.tools
    [item] = whole.output
    assert (item.type, item.name, item.namespace, item.status) == (kind, name, namespace, "completed"), item
    text = item.input if kind == "custom_tool_call" else item.arguments
    assert text == ("*** Begin" if kind == "custom_tool_call" else '{ "to": "Ann"}')
    events = [*client.responses.create(**asked(word), stream=True)]
    deltas = [event.delta for event in events if event.type.endswith(".delta")]
    assert "".join(deltas) == text and events[-1].response.output[0].name == name
    pieces = {"custom_tool_call": "custom_tool_call_input", "function_call": "function_call_arguments"}[kind]
    assert f"response.{pieces}.done" in [event.type for event in events]
    result = {"type": f"{kind}_output", "call_id": item.call_id, "output": "thoughts"}
    later = client.responses.create(**asked([result], previous_response_id=whole.id))
    again = client.responses.create(**asked([{"role": "user", "content": word}, item.model_dump(), result]))
    assert told(later) == told(again) and later.usage.input_tokens == again.usage.input_tokens
try:
    client.responses.create(**asked("custom", tool_choice={"type": "web_search"}))
except openai.BadRequestError as error:
    assert error.param == "tool_choice", error
else:
    raise AssertionError("a call is forced that cannot be made")

reasoning = {"effort": "medium", "summary": "auto"}
whole = checked(client.responses.create(**asked("thoughts", reasoning=reasoning)))
assert [part.text for part in whole.output[0].summary] == ["Hm, rather wet."] and not whole.output[0].content
assert whole.reasoning.summary == "auto"
events = [checked(event) for event in client.responses.create(**asked("thoughts", reasoning=reasoning), stream=True)]
kinds = [event.type for event in events if event.type.startswith("response.reasoning")]
assert kinds[0] == "response.reasoning_summary_part.added" and kinds[-1] == "response.reasoning_summary_part.done"
told_summary = [event.delta for event in events if event.type == "response.reasoning_summary_text.delta"]
assert "".join(told_summary) == "Hm, rather wet." and kinds[-2] == "response.reasoning_summary_text.done"
print("done")
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpClient]:
    """A gateway before a worker whose model follows the scripts."""
    folder = tmp_path_factory.mktemp("speaking")
    save_scripted_model(folder / "model", WISHES, SCRIPTS)
    stack = Stack(folder)
    settings = {"engine": "transformers", "kv_tokens": 4096, "dtype": "float32"}
    stack.worker("a", **settings, model=f"tiny={folder / 'model'}")
    gateway, http = serving(stack, throttle="none")
    gateway.wait_for("ready")
    yield http
    stack.close()


def test_responses_tell_calls_of_custom_tools_and_namespaces_and_summaries(model: HttpClient) -> None:
    assert run(CLIENT, HEAD + PROGRAM, f"http://127.0.0.1:{model.port}/v1") == "done\n"


@pytest.mark.parametrize(
    ("word", "limit", "reason", "kinds"),
    [("newline", 200, "tool_use", ["tool_use"]), ("newline", 16, "max_tokens", ["text"])],
)
def test_a_message_that_stops_for_a_tool_has_its_call(
    model: HttpClient, word: str, limit: int, reason: str, kinds: list[str]
) -> None:
    """The line break in the argument is one that JSON wants escaped."""
    tools = [{"name": "write", "input_schema": {"type": "object"}}]
    body = {"messages": [{"role": "user", "content": word}], "tools": tools, "max_tokens": limit, "temperature": 0}
    told = model.post(MESSAGES, body).json
    assert (told["stop_reason"], [block["type"] for block in told["content"]]) == (reason, kinds)
    if reason == "tool_use":
        assert told["content"][0]["input"] == {"text": "first\nnext"}
        deltas = [event.get("delta", {}) for event in model.post(MESSAGES, {**body, "stream": True}).named_events]
        pieces = "".join(delta.get("partial_json", "") for delta in deltas)
        assert json.loads(pieces) == {"text": "first\nnext"}


def test_a_chat_tells_calls_of_custom_tools_as_its_api_does(model: HttpClient) -> None:
    rule = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a/"}}
    tools = [{"type": "custom", "custom": {"name": "patch", "description": "Change.", "format": rule}}]
    asked = {"role": "user", "content": "custom"}
    body = {"messages": [asked], "tools": tools, "temperature": 0, "max_tokens": 200}
    [choice] = model.post(CHAT, body).json["choices"]
    [call] = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert (call["type"], call["custom"]) == ("custom", {"name": "patch", "input": "*** Begin"})
    streamed: dict[str, str] = {"name": "", "input": ""}
    for event in model.post(CHAT, {**body, "stream": True}).events:
        for piece in event["choices"][0]["delta"].get("tool_calls", ()):
            assert piece["index"] == 0
            for name, text in piece["custom"].items():
                streamed[name] += text
    assert streamed == call["custom"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "thoughts"}
    later = model.post(CHAT, {**body, "messages": [asked, choice["message"], result]})
    assert later.json["choices"][0]["message"]["content"] == "It rains."


@pytest.mark.parametrize(
    ("path", "fields", "text", "ignored"),
    [
        (CHAT, {"reasoning_effort": "high"}, "loudly", ""),
        (CHAT, {"reasoning_effort": "none"}, "newline", "reasoning_effort"),  # the template rejects it
        (CHAT, {"reasoning_effort": "medium", "verbosity": "low"}, "newline", "reasoning_effort, verbosity"),
        (CHAT, {"reasoning_effort": "low", "verbosity": "low"}, "softly", "verbosity"),
        (CHAT, {"reasoning_effort": "high", "chat_template_kwargs": {"reasoning_effort": "low"}}, "softly", ""),
        (CHAT, {"thinking": {"type": "enabled"}}, "thoughts", ""),  # DeepSeek, GLM, Kimi
        (CHAT, {"thinking": {"type": "disabled"}, "reasoning_effort": "high"}, "loudly", ""),
        (CHAT, {"enable_thinking": True}, "thoughts", ""),  # Qwen's
        (CHAT, {"enable_thinking": False, "thinking_budget": 0}, "newline", "thinking_budget"),
        (CHAT, {"reasoning": {"effort": "low", "exclude": True}}, "softly", ""),  # OpenRouter
        (CHAT, {"reasoning": {"enabled": True, "max_tokens": 100}}, "thoughts", ""),
        (CHAT, {"think": True}, "thoughts", ""),  # Ollama
        (CHAT, {"think": "high"}, "loudly", ""),
        (CHAT, {"think": [], "thinking": 5, "reasoning": {"effort": 2**99}}, "newline", "reasoning, thinking"),
        (RESPONSES, {"reasoning": {"effort": "low", "summary": "auto"}}, "softly", ""),
        (MESSAGES, {"thinking": {"type": "adaptive"}}, "thoughts", ""),
        (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 31999}}, "thoughts", ""),
        (MESSAGES, {"thinking": {"type": "disabled"}}, "newline", ""),
        (MESSAGES, {"output_config": {"effort": "high"}}, "loudly", ""),
    ],
)
def test_wishes_reach_a_template_that_knows_them(
    model: HttpClient, path: str, fields: dict[str, object], text: str, ignored: str
) -> None:
    """The template writes the word that names the script."""
    asked = {"input": "newline"} if path == RESPONSES else {"messages": [{"role": "user", "content": "newline"}]}
    limit = {"max_output_tokens": 200} if path == RESPONSES else {"max_tokens": 200}
    answer = model.post(path, {**asked, **limit, "temperature": 0, **fields})
    assert answer.status == 200, answer.body
    assert answer.headers.get("x-fairlead-ignored", "") == ignored
    written = json.dumps(answer.json)
    said = {"loudly": "WITH ALL EFFORT", "softly": "hardly any effort", "thoughts": "It rains.", "newline": "first"}
    assert [word for word in said if said[word] in written] == [text]


def test_an_input_may_refer_to_items_that_are_stored(model: HttpClient) -> None:
    """So do programs that leave it to the server to store what was said, as is the default."""
    tools = [{"type": "custom", "name": "patch"}]
    asked = {"role": "user", "content": "custom"}
    first = model.post(RESPONSES, {"input": [asked], "tools": tools, "temperature": 0}).json
    [call] = first["output"]
    result = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "thoughts"}
    referred = [asked, {"type": "item_reference", "id": call["id"]}, result]
    later = model.post(RESPONSES, {"input": referred, "tools": tools, "temperature": 0}).json
    in_full = model.post(RESPONSES, {"input": [asked, call, result], "tools": tools, "temperature": 0}).json
    assert later["usage"]["input_tokens"] == in_full["usage"]["input_tokens"]
    assert [item["type"] for item in later["output"]] == ["reasoning", "message"]
    again = [*referred, *({"type": "item_reference", "id": item["id"]} for item in later["output"]), asked]
    assert model.post(RESPONSES, {"input": again, "tools": tools}).status == 200
    bare = [asked, {"id": call["id"]}, {"type": None, "id": "msg_0123456789abcdef"}]
    refused = model.post(RESPONSES, {"input": bare, "tools": tools})  # the type of a reference may be left out
    assert (refused.status, refused.error["param"]) == (400, "input[2].id")
    for unknown in ("msg_0123456789abcdef", f"{call['id']}_9", "", None):
        refused = model.post(RESPONSES, {"input": [{"type": "item_reference", "id": unknown}]})
        assert (refused.status, refused.error["param"]) == (400, "input[0].id")
        assert "not found" in refused.error["message"]
