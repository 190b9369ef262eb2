"""Tool calls and reasoning of a model that writes them, by OpenAI's client and over plain HTTP."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead import InvalidRequest, SyncClient, Tool
from gateway.validation import MAX_TOOLS
from tests.services import Process, Stack
from tests.unit.gateway.http import test_anthropic_client as anthropic_client
from tests.unit.gateway.http.clients import run
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import CHAT, RESPONSES, TOKENIZE, HttpClient
from tests.unit.gateway.http.scripted_model import TEMPLATE, THOUGHTS, save_scripted_model
from tests.unit.gateway.http.test_openai_client import CLIENT, HEAD

pytestmark = [pytest.mark.e2e, pytest.mark.slow]  # a worker loads torch and transformers

WEATHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "%s"}}\n</tool_call>'
SCRIPTS = {
    "single": WEATHER % "Paris",
    "parallel": "Let me look.\n\n" + WEATHER % "Oslo" + "\n" + WEATHER % "Rome, the capital",
    "thoughts": THOUGHTS,
    "broken": "<tool_call>weather(Bern)</tool_call>",
    "plain text": "A tide rises twice a day.",
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Tell it.", "parameters": SCHEMA}}]
PROGRAM = """
tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]

def ask(word, **fields):
    fields = {"model": "tiny", "messages": [{"role": "user", "content": word}], "tools": tools} | fields
    return client.chat.completions.create(**fields)

def calls(message):
    return [(call.function.name, call.function.arguments) for call in message.tool_calls or []]

[choice] = ask("single").choices
assert choice.finish_reason == "tool_calls" and choice.message.content is None
assert calls(choice.message) == [("weather", '{"city": "Paris"}')]
[call] = choice.message.tool_calls
assert call.type == "function" and len(call.id) == 9

[choice] = ask("parallel").choices
assert choice.message.content == "Let me look."
assert calls(choice.message) == [("weather", '{"city": "Oslo"}'), ("weather", '{"city": "Rome, the capital"}')]
assert len({call.id for call in choice.message.tool_calls}) == 2
[choice] = ask("parallel", parallel_tool_calls=False).choices
assert calls(choice.message) == [("weather", '{"city": "Oslo"}')]

for headers in ({}, {"x-fairlead-streaming": "each_token"}):
    arguments, names, ids, content, reasons = {}, {}, {}, "", []
    pieces = 0
    for chunk in ask("parallel", stream=True, extra_headers=headers):
        [choice] = chunk.choices
        content += choice.delta.content or ""
        reasons.append(choice.finish_reason)
        for call in choice.delta.tool_calls or []:
            pieces += 1
            if call.id:
                ids[call.index], names[call.index] = call.id, call.function.name
                assert call.type == "function" and call.index not in arguments
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    assert content == "Let me look." and list(names.values()) == ["weather"] * 2 and len(set(ids.values())) == 2
    assert arguments == {0: '{"city": "Oslo"}', 1: '{"city": "Rome, the capital"}'}, arguments
    assert reasons[-1] == "tool_calls" and set(reasons[:-1]) == {None}
    assert not headers or pieces > 6, "arguments are streamed"

with client.chat.completions.stream(
    model="tiny", messages=[{"role": "user", "content": "parallel"}], tools=tools
) as stream:
    for event in stream:
        pass
    assert calls(stream.get_final_completion().choices[0].message)[1] == ("weather", '{"city": "Rome, the capital"}')

[choice] = ask("broken").choices
assert (choice.finish_reason, choice.message.content) == ("stop", "<tool_call>weather(Bern)</tool_call>")
assert not choice.message.tool_calls
[choice] = ask("single", tool_choice="none").choices
assert choice.finish_reason == "stop" and choice.message.content.startswith("<tool_call>")
[choice] = ask("single", max_tokens=18).choices
assert choice.finish_reason == "length" and calls(choice.message)[0][1].startswith("{")
[choice] = ask("thoughts").choices
assert (choice.message.reasoning_content, choice.message.content) == ("Hm, rather wet.", "It rains.")
reasoning = content = ""
for chunk in ask("thoughts", stream=True, tools=openai.NOT_GIVEN):
    reasoning += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
    content += chunk.choices[0].delta.content or ""
assert (reasoning, content) == ("Hm, rather wet.", "It rains.")
[choice] = ask("single").choices
[call] = choice.message.tool_calls
messages = [
    {"role": "user", "content": "single"},
    {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
    {"role": "tool", "tool_call_id": call.id, "content": "thoughts"},
]
[choice] = ask("", messages=messages).choices
assert choice.message.content == "It rains."
print("done")
"""


MESSAGES_PROGRAM = """
tools = [{"name": "weather", "input_schema": {"type": "object"}}]

def asked(word, **fields):
    messages = [{"role": "user", "content": word}]
    return {"model": "tiny", "messages": messages, "max_tokens": 200, "tools": tools} | fields

def told(message):
    fields = {"text": "text", "thinking": "thinking", "tool_use": "input"}
    return [(block.type, getattr(block, fields[block.type])) for block in message.content]

cities = [("tool_use", {"city": "Oslo"}), ("tool_use", {"city": "Rome, the capital"})]
for word, reason, blocks in (
    ("single", "tool_use", [("tool_use", {"city": "Paris"})]),
    ("parallel", "tool_use", [("text", "Let me look."), *cities]),
    ("thoughts", "end_turn", [("thinking", "Hm, rather wet."), ("text", "It rains.")]),
    ("broken", "end_turn", [("text", "<tool_call>weather(Bern)</tool_call>")]),
):
    whole = client.messages.create(**asked(word))
    assert (whole.stop_reason, told(whole)) == (reason, blocks), (word, whole)
    for headers in ({}, {"x-fairlead-streaming": "each_token"}):
        with client.messages.stream(**asked(word), extra_headers=headers) as stream:
            events = [event.type for event in stream]
            last = stream.get_final_message()
        assert (last.stop_reason, told(last)) == (reason, blocks), (word, last)
        assert events.count("content_block_start") == events.count("content_block_stop") == len(blocks)
one = client.messages.create(**asked("parallel", tool_choice={"type": "auto", "disable_parallel_tool_use": True}))
assert told(one) == [("text", "Let me look."), cities[0]]
assert client.messages.create(**asked("single", tool_choice={"type": "none"})).stop_reason == "end_turn"
cut = client.messages.create(**asked("single", max_tokens=18))
assert cut.stop_reason == "max_tokens" and cut.content[0].text.startswith("weather({")
messages = [
    {"role": "user", "content": "parallel"},
    {"role": "assistant", "content": [block.model_dump() for block in one.content]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": one.content[1].id, "content": "thoughts"}]},
]
assert told(client.messages.create(**asked("", messages=messages)))[1] == ("text", "It rains.")
assert client.messages.count_tokens(model="tiny", messages=messages, tools=tools).input_tokens > 20
print("done")
"""


RESPONSES_PROGRAM = """
tools = [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}]

def checked(model):
    type(model).model_validate(model.model_dump(), strict=True)
    return model

def asked(word, **fields):
    return {"model": "tiny", "input": word, "tools": tools} | fields

def told(response):
    fields = {"function_call": lambda item: item.arguments}
    return [(item.type, fields.get(item.type, lambda item: item.content[0].text)(item)) for item in response.output]

cities = [("function_call", '{"city": "Oslo"}'), ("function_call", '{"city": "Rome, the capital"}')]
for word, items in (
    ("single", [("function_call", '{"city": "Paris"}')]),
    ("parallel", [("message", "Let me look."), *cities]),
    ("thoughts", [("reasoning", "Hm, rather wet."), ("message", "It rains.")]),
    ("broken", [("message", "<tool_call>weather(Bern)</tool_call>")]),
):
    whole = checked(client.responses.create(**asked(word)))
    assert told(whole) == items, (word, whole)
    events = [checked(event) for event in client.responses.create(**asked(word), stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert told(events[-1].response) == items, (word, events[-1])
    ended = [event.item for event in events if event.type == "response.output_item.done"]
    assert ended == events[-1].response.output
    with client.responses.stream(**asked(word)) as stream:
        for event in stream:
            pass
        assert told(stream.get_final_response()) == items
one = client.responses.create(**asked("parallel", parallel_tool_calls=False))
assert told(one) == [("message", "Let me look."), cities[0]]
result = {"type": "function_call_output", "call_id": one.output[1].call_id, "output": "thoughts"}
later = client.responses.create(**asked([result], previous_response_id=one.id))
assert told(later)[1] == ("message", "It rains.")
said = [{"role": "user", "content": "parallel"}, *[item.model_dump() for item in one.output], result]
again = client.responses.create(**asked(said))
assert again.usage.input_tokens == later.usage.input_tokens, "what is stored is what was said"
print("done")
"""


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, HttpClient]]:
    """A gateway before a worker whose model follows the scripts."""
    folder = tmp_path_factory.mktemp("speaking")
    save_scripted_model(folder / "model", TEMPLATE, SCRIPTS)
    stack = Stack(folder)
    settings = {"engine": "transformers", "kv_tokens": 4096, "dtype": "float32"}
    stack.worker("a", **settings, model=f"tiny={folder / 'model'}")
    gateway, http = serving(stack, throttle="none")
    gateway.wait_for("ready")
    yield gateway, http
    stack.close()


@pytest.fixture(scope="module")
def model(speaking: tuple[Process, HttpClient]) -> HttpClient:
    return speaking[1]


def ask(http: HttpClient, word: str, **fields: object) -> Any:
    return http.post(CHAT, {"messages": [{"role": "user", "content": word}], "tools": TOOLS, **fields})


def test_openais_client_calls_tools(model: HttpClient) -> None:
    assert run(CLIENT, HEAD + PROGRAM, f"http://127.0.0.1:{model.port}/v1") == "done\n"


def test_anthropics_client_calls_tools(model: HttpClient) -> None:
    program = anthropic_client.HEAD + MESSAGES_PROGRAM
    assert run(anthropic_client.CLIENT, program, f"http://127.0.0.1:{model.port}") == "done\n"


def test_responses_have_calls_and_reasoning(model: HttpClient) -> None:
    assert run(CLIENT, HEAD + RESPONSES_PROGRAM, f"http://127.0.0.1:{model.port}/v1") == "done\n"


def test_a_conversation_goes_on_after_a_call_that_is_no_json(model: HttpClient) -> None:
    tools = [{"type": "function", "name": "weather", "parameters": SCHEMA}]
    cut = model.post(RESPONSES, {"tools": tools, "input": "single", "max_output_tokens": 18}).json
    [call] = cut["output"]
    assert (cut["status"], call["type"]) == ("incomplete", "function_call")
    answer = model.post(RESPONSES, {"tools": tools, "input": "plain text", "previous_response_id": cut["id"]})
    assert answer.status == 200, answer.body
    assert answer.json["output"][0]["content"][0]["text"] == SCRIPTS["plain text"]


@pytest.mark.parametrize("tools", [TOOLS, []])
def test_a_text_without_calls_is_the_same_with_tools_and_without(model: HttpClient, tools: object) -> None:
    [choice] = ask(model, "plain text", tools=tools).json["choices"]
    assert choice["message"] == {"role": "assistant", "content": SCRIPTS["plain text"], "refusal": None}
    assert choice["finish_reason"] == "stop"


def test_the_sdk_tells_calls_and_reasoning(speaking: tuple[Process, HttpClient]) -> None:
    offered = Tool("weather", parameters=SCHEMA)
    with SyncClient(speaking[0].address) as client:
        told = client.chat([("user", "parallel")], tools=[offered])
        assert (told.text, told.reasoning) == ("Let me look.", "")
        assert [call.arguments for call in told.tool_calls] == ['{"city": "Oslo"}', '{"city": "Rome, the capital"}']
        chunks = list(client.stream_chat([("user", "parallel")], tools=[offered], each_token=True))
        pieces = [piece for chunk in chunks for piece in chunk.tool_calls]
        assert "".join(chunk.text for chunk in chunks) == told.text
        assert [piece.name for piece in pieces if piece.name] == ["weather", "weather"]
        assert "".join(piece.arguments for piece in pieces if piece.number == 1) == told.tool_calls[1].arguments
        first = {"role": "assistant", "content": told.text, "tool_calls": told.tool_calls}
        result = {"role": "tool", "content": "thoughts", "tool_call_id": told.tool_calls[0].id}
        answer = client.chat([("user", "parallel"), first, result], tools=[offered])
        assert (answer.reasoning, answer.text, answer.tool_calls) == ("Hm, rather wet.", "It rains.", ())
        assert client.chat([("user", "broken")], tools=[offered]).text == SCRIPTS["broken"]
        with pytest.raises(InvalidRequest, match=r"tools\[0\]"):
            client.chat([("user", "hi")], tools=[Tool("f", parameters={"a": object()})])


def test_the_log_probabilities_of_a_call_are_those_of_its_tokens(model: HttpClient) -> None:
    whole = ask(model, "single", logprobs=True).json
    [choice] = whole["choices"]
    assert "".join(token["token"] for token in choice["logprobs"]["content"]).startswith(SCRIPTS["single"])
    assert len(choice["logprobs"]["content"]) == whole["usage"]["completion_tokens"]
    streamed = [each["choices"][0] for each in ask(model, "single", logprobs=True, stream=True).events]
    assert [token for each in streamed for token in each["logprobs"]["content"]] == choice["logprobs"]["content"]


def test_output_under_a_constraint_is_text(http: HttpClient) -> None:
    """The constraint allows what would be a call otherwise."""
    answer = ask(http, "single", structured_outputs={"choice": [SCRIPTS["single"]]})
    assert answer.json["choices"][0]["message"]["content"] == SCRIPTS["single"]


FUNCTION = {"name": "weather", "arguments": "{}"}
CALL = {"id": "a", "type": "function", "function": FUNCTION}


def said(role: str, **fields: object) -> dict[str, object]:
    return {"messages": [{"role": role, "content": "hi", **fields}]}


def tool(**function: object) -> dict[str, object]:
    return {"tools": [{"type": "function", "function": function}]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "custom"}]}, "tools[0].custom"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        (tool(name=""), "tools[0].function.name"),
        (tool(name="f", parameters="{}"), "tools[0].function.parameters"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}] * (MAX_TOOLS + 1)}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        (said("user", tool_calls=[CALL]), "messages[0].tool_calls"),
        (said("user", tool_call_id="a"), "messages[0].tool_call_id"),
        (said("assistant", tool_calls=[{"id": "a", "type": "custom"}]), "messages[0].tool_calls[0]"),
        (said("assistant", function_call={"name": "f"}), "messages[0].function_call"),
    ],
)
def test_refused_fields_of_tools_are_named(http: HttpClient, fields: dict[str, Any], param: str) -> None:
    answer = http.post(CHAT, {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, **fields})
    assert (answer.status, answer.error["param"]) == (400, param)


def test_the_prompt_has_the_tools_and_calls(http: HttpClient) -> None:
    """The fake engine's template writes tools as lines of their own, and calls as Hermes."""
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "rain"}]},
    ]
    asked = {"messages": messages, "tools": TOOLS}
    tokens = http.post(TOKENIZE, asked).json["tokens"]
    assert http.post(CHAT, {**asked, "max_tokens": 1}).json["usage"]["prompt_tokens"] == len(tokens)
    offered, *lines = bytes(tokens).decode().split("\n")
    assert json.loads(offered.removeprefix("tool: ")) == TOOLS[0]["function"]
    assert lines == [
        "user: hi",
        'assistant: <tool_call>{"name": "weather", "arguments": {}}</tool_call>',
        "tool a: rain",
        "assistant: ",
    ]
