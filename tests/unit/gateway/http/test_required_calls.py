"""Tool calls that are required, and arguments that have to fit their schema, by each API; any engine obeys masks."""

import json
from typing import Any

import pytest

from fairlead import InvalidRequest, SyncClient, Tool
from tests.services import Process
from tests.unit.gateway.http.http_client import CHAT, HELLO, MESSAGES, RESPONSES, Answer, HttpClient

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTIONS: list[dict[str, Any]] = [{"name": "weather", "parameters": SCHEMA}, {"name": "clock"}]
CHAT_TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
RESPONSES_TOOLS = [{"type": "function", **function} for function in FUNCTIONS]
MESSAGES_TOOLS = [{"name": "weather", "input_schema": SCHEMA}, {"name": "clock", "input_schema": {}}]
HABITS: list[dict[str, Any]] = [
    {"tool_choice": "any"},  # Mistral's word
    {"tools": [{"function": function} for function in FUNCTIONS]},  # without their type
]
CLOCK_BY_NAME = {"type": "function", "function": {"name": "clock"}}
Calls = list[tuple[str, Any]]


def chat(http: HttpClient, **fields: object) -> Answer:
    return http.post(CHAT, {"messages": HELLO, "max_tokens": 400, "seed": 1, "tools": CHAT_TOOLS, **fields})


PATTERNED = {"not": {"pattern": "a"}}


def told(answer: Answer) -> Calls:
    """The calls of a chat, of which it consists."""
    assert answer.status == 200, answer.body
    [choice] = answer.json["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    functions = [call["function"] for call in choice["message"]["tool_calls"]]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def streamed(answer: Answer) -> Calls:
    """The same of a chat's stream."""
    names, arguments = dict[int, str](), dict[int, str]()
    for event in answer.events:
        for call in event["choices"][0]["delta"].get("tool_calls", ()):
            names.setdefault(call["index"], call["function"].get("name"))
            arguments[call["index"]] = arguments.get(call["index"], "") + call["function"]["arguments"]
    return [(name, json.loads(arguments[number])) for number, name in names.items()]


def are_allowed(calls: Calls) -> bool:
    return bool(calls) and all(
        arguments == {} if name == "clock" else arguments["city"] in ("Paris", "Oslo") for name, arguments in calls
    )


def test_a_required_call_is_made_whole_and_streamed(http: HttpClient) -> None:
    ways: list[dict[str, Any]] = [
        {},
        {"temperature": 0.0},
        {"parallel_tool_calls": False},
        {"n": 1, "seed": 2},
        *HABITS,
    ]
    for fields in ways:
        asked: dict[str, Any] = {"tool_choice": "required", **fields}
        calls = told(chat(http, **asked))
        assert are_allowed(calls)
        assert streamed(chat(http, stream=True, **asked)) == calls
        assert len(calls) == 1 or "parallel_tool_calls" not in fields


def test_a_named_tool_is_called_once(http: HttpClient) -> None:
    assert told(chat(http, tool_choice=CLOCK_BY_NAME)) == [("clock", {})]


def test_calls_of_strict_tools_are_valid_and_others_may_be_text(http: HttpClient) -> None:
    strict = [{"type": "function", "function": {**function, "strict": True}} for function in FUNCTIONS]
    answer = chat(http, tools=strict, max_tokens=30)
    assert answer.status == 200
    assert answer.json["choices"][0]["finish_reason"] == "length", "the model decides, and writes"
    odd = {"name": "odd", "parameters": {"properties": {"a": {"uniqueItems": True}}}, "strict": True}
    refused = {"type": "function", "function": odd}
    answer = chat(http, tools=[refused])
    assert (answer.status, answer.error["param"]) == (400, "tools")
    told = "the parameters of odd: not supported: uniqueItems (at #/properties/a): leave it out and check the output"
    assert told in answer.error["message"]
    assert "calls" not in answer.error["message"], "the grammar is nothing that the caller wrote"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "clock"}])
def test_a_response_makes_the_calls_that_are_required(http: HttpClient, choice: object) -> None:
    body = {"input": "hello", "tools": RESPONSES_TOOLS, "tool_choice": choice, "parallel_tool_calls": False}
    answer = http.post(RESPONSES, body)
    assert answer.status == 200, answer.body
    [item] = answer.json["output"]
    assert item["type"] == "function_call"
    assert are_allowed([(item["name"], json.loads(item["arguments"]))])
    assert choice == "required" or item["name"] == "clock"
    assert answer.json["tool_choice"] == choice


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "clock"}])
def test_a_message_uses_the_tools_that_it_has_to(http: HttpClient, choice: dict[str, Any]) -> None:
    body = {"messages": HELLO, "max_tokens": 400, "tools": MESSAGES_TOOLS, "tool_choice": choice}
    answer = http.post(MESSAGES, body)
    assert answer.status == 200, answer.body
    blocks = [(block["name"], block["input"]) for block in answer.json["content"]]
    assert are_allowed(blocks)
    assert answer.json["stop_reason"] == "tool_use"
    assert choice["type"] == "any" or blocks == [("clock", {})]


def test_the_sdk_requires_calls(shared: tuple[Process, HttpClient]) -> None:
    tools = [Tool("weather", parameters=SCHEMA), Tool("clock", strict=True)]
    with SyncClient(shared[0].address) as client:
        for choice in ("required", "clock"):
            completion = client.chat(HELLO, tools=tools, tool_choice=choice, parallel_tool_calls=False, max_tokens=400)
            [call] = completion.tool_calls
            assert are_allowed([(call.name, json.loads(call.arguments))])
            assert choice == "required" or call.name == "clock"
        with pytest.raises(InvalidRequest, match=r"must name one of the tools, got 'other'") as refused:
            client.chat(HELLO, tools=tools, tool_choice="other")
        assert refused.value.field == "prompt.chat.tool_choice"
        with pytest.raises(InvalidRequest, match="must be the name of a tool"):
            client.chat(HELLO, tools=tools, tool_choice=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"tools": []}, "tool_choice", "there are no tools"),
        ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice", "got 'other'"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto"}}, "tool_choice", "`tools`"),
        ({"tool_choice": "perhaps"}, "tool_choice", '"perhaps"'),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs.regex", "an output has one constraint"),
        ({"ignore_eos": True}, "tools", "ignore_eos"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"not": {"pattern": "a"}}}}]},
            "tools",
            "not",
        ),
    ],
)
def test_calls_that_cannot_be_promised_are_refused_by_name(
    http: HttpClient, fields: dict[str, Any], param: str, words: str
) -> None:
    answer = chat(http, **{"tool_choice": "required", **fields})
    assert (answer.status, answer.error["param"]) == (400, param)
    assert words in answer.error["message"]
