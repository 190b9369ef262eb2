"""Models whose tokenizers say how answers are read, and models that write arguments as bare texts, on real workers."""

from collections.abc import Iterator
from typing import Any

import pytest

from fairlead import SyncClient, Tool
from tests.services import Process, Stack
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import CHAT, MESSAGES, RESPONSES, HttpClient
from tests.unit.gateway.http.scripted_model import save_scripted_model

pytestmark = [pytest.mark.e2e, pytest.mark.slow]  # a worker loads torch and transformers

PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"
CODER = """{% for m in messages %}{% for call in m.tool_calls or [] %}<tool_call>
<function={{ call.function.name }}>
{% for name, value in call.function.arguments | items %}<parameter={{ name }}>
{{ value if value is string else value | tojson }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}{{ m.content }}{% endfor %}"""
SPECIAL = ["<|think|>", "<|/think|>", "<|call|>", "<|/call|>", "<|more|>", "<|/more|>"]
SHIPPED = {
    "start_anchor": "<model>",
    "fields": {
        "thinking": {"open": "<|think|>", "close": "<|/think|>"},
        "tool_calls": {
            "open_pattern": r"<\|(?:call|more)\|>(?P<name>\w+)\(",
            "close": [")<|/call|>", ")<|/more|>"],
            "repeats": True,
            "content": "kv-lines",
            "content_args": {"line_sep": ",", "kv_sep": "="},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {},
    },
}
SHIPPED_SCRIPTS = {
    "calls": "<|think|>Hm, wet.<|/think|>Let me look."
    "<|call|>weather(city=Paris,days=2)<|/call|><|more|>clock()<|/more|>",
    "plain text": "It rains.",
}
CODER_SCRIPTS = {
    "calls": "Let me look.\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2"
    "\n</parameter>\n</function>\n</tool_call>\n<tool_call><function=clock></function></tool_call>",
    "plain text": "It rains.",
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": ["integer", "null"]}}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("weather", "clock")]
CALLS = [("weather", '{"city": "Paris", "days": 2}'), ("clock", "{}")]
REASONING = {"shipped": "Hm, wet.", "coder": ""}


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, HttpClient]]:
    """A gateway before a worker for each model."""
    folder = tmp_path_factory.mktemp("speaking")
    save_scripted_model(folder / "shipped", PLAIN, SHIPPED_SCRIPTS, SHIPPED, SPECIAL)
    save_scripted_model(folder / "coder", CODER, CODER_SCRIPTS)
    stack = Stack(folder)
    settings = {"engine": "transformers", "kv_tokens": 4096, "dtype": "float32"}
    for name in REASONING:
        stack.worker(name, **settings, model=f"{name}={folder / name}")
    gateway, http = serving(stack, throttle="none")
    gateway.wait_for("ready")
    yield gateway, http
    stack.close()


def ask(http: HttpClient, model: str, word: str, **fields: object) -> Any:
    messages = [{"role": "user", "content": word}]
    return http.post(CHAT, {"model": model, "messages": messages, "tools": TOOLS, **fields})


@pytest.mark.parametrize("model", REASONING)
def test_chat_completions_tell_the_parts(speaking: tuple[Process, HttpClient], model: str) -> None:
    http = speaking[1]
    [choice] = ask(http, model, "calls").json["choices"]
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert (message["content"], message.get("reasoning_content", "")) == ("Let me look.", REASONING[model])
    told = [(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]
    assert told == CALLS
    streamed = [event["choices"][0]["delta"] for event in ask(http, model, "calls", stream=True).events]
    assert "".join(delta.get("content") or "" for delta in streamed) == "Let me look."
    assert "".join(delta.get("reasoning_content", "") for delta in streamed) == REASONING[model]
    pieces = [piece for delta in streamed for piece in delta.get("tool_calls", ())]
    for number, (name, arguments) in enumerate(CALLS):
        functions = [piece["function"] for piece in pieces if piece["index"] == number]
        assert "".join(function.get("name", "") for function in functions) == name
        assert "".join(function["arguments"] for function in functions) == arguments
    [choice] = ask(http, model, "plain text").json["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("It rains.", "stop")


@pytest.mark.parametrize("model", REASONING)
def test_the_other_apis_and_the_sdk_tell_the_same(speaking: tuple[Process, HttpClient], model: str) -> None:
    gateway, http = speaking
    flat = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name, _ in CALLS]
    items = http.post(RESPONSES, {"model": model, "input": "calls", "tools": flat}).json["output"]
    assert [(each["name"], each["arguments"]) for each in items if each["type"] == "function_call"] == CALLS
    offered = [{"name": name, "input_schema": SCHEMA} for name, _ in CALLS]
    asked = {"model": model, "messages": [{"role": "user", "content": "calls"}], "max_tokens": 200, "tools": offered}
    blocks = http.post(MESSAGES, asked).json["content"]
    assert [block["input"] for block in blocks if block["type"] == "tool_use"] == [{"city": "Paris", "days": 2}, {}]
    with SyncClient(gateway.address) as client:
        tools = [Tool(name, parameters=SCHEMA) for name, _ in CALLS]
        told = client.chat([("user", "calls")], model=model, tools=tools)
        assert [(call.name, call.arguments) for call in told.tool_calls] == CALLS
        assert (told.text, told.reasoning) == ("Let me look.", REASONING[model])


def test_a_required_call_is_refused_where_only_the_response_template_knows_calls(
    speaking: tuple[Process, HttpClient],
) -> None:
    answer = ask(speaking[1], "shipped", "calls", tool_choice="required")
    assert (answer.status, answer.error["param"]) == (400, "tool_choice")
