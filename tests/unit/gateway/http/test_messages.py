"""Anthropic's messages, whole and streamed, by the letter of the API."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.http.messages import UnsupportedByMessages
from tests.services import Stack
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import HELLO, MESSAGES, Answer, HttpClient

BODY = {"model": "tiny", "messages": HELLO, "max_tokens": 6, "ignore_eos": True, "seed": 3}


HOSTED = {"type": "bash_20250124", "name": "bash"}
FORM = {"type": "json_schema", "schema": {}}


def ask(http: HttpClient, **fields: object) -> Answer:
    return http.post(MESSAGES, {**BODY, **fields})


def error_of(answer: Answer) -> Any:
    """The error of a body that must have the API's form."""
    body = answer.json
    assert set(body) == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert set(body["error"]) == {"type", "message"}
    assert body["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    return body["error"]


def test_a_whole_message(http: HttpClient) -> None:
    answer = ask(http)
    assert answer.status == 200
    message = answer.json
    assert message["id"] == f"msg_{answer.headers['request-id']}"
    assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "tiny")
    [block] = message["content"]
    assert block["type"] == "text"
    assert len(block["text"]) == 6
    assert (message["stop_reason"], message["stop_sequence"]) == ("max_tokens", None)
    assert message["usage"]["output_tokens"] == 6


def test_a_stream_by_the_letter(http: HttpClient) -> None:
    answer = ask(http, stream=True)
    start, ping, block, *deltas, stop, delta, end = answer.named_events
    assert start["type"] == "message_start"
    assert start["message"]["id"] == f"msg_{answer.headers['request-id']}"
    assert (start["message"]["content"], start["message"]["stop_reason"]) == ([], None)
    assert start["message"]["usage"]["input_tokens"] + start["message"]["usage"]["cache_read_input_tokens"] > 0
    assert start["message"]["usage"]["output_tokens"] == 0
    assert block == {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    assert ping == {"type": "ping"}
    assert {(part["type"], part["index"]) for part in deltas} == {("content_block_delta", 0)}
    text = "".join(part["delta"]["text"] for part in deltas)
    assert text == ask(http).json["content"][0]["text"]
    assert stop == {"type": "content_block_stop", "index": 0}
    assert delta["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert delta["usage"]["output_tokens"] == 6
    assert end == {"type": "message_stop"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_message_of_no_tokens_warms_the_cache(http: HttpClient, stream: bool) -> None:
    """So Anthropic's API has it: a prompt is computed before it is needed."""
    prompt = [{"role": "user", "content": f"warm {stream} " * 40}]
    answer = ask(http, messages=prompt, max_tokens=0, stream=stream)
    assert answer.status == 200
    if stream:
        start, ping, delta, end = answer.named_events
        assert start["message"]["content"] == []
        assert (ping["type"], end["type"]) == ("ping", "message_stop")
        told = delta["delta"]
    else:
        told = answer.json
        assert told["content"] == []
    assert (told["stop_reason"], told["stop_sequence"]) == ("max_tokens", None)
    usage = ask(http, messages=prompt).json["usage"]
    assert usage["cache_read_input_tokens"] > usage["input_tokens"]


def test_the_stop_sequence_that_was_met_is_told(http: HttpClient) -> None:
    whole = ask(http, max_tokens=12).json["content"][0]["text"]
    stop = whole[6:8]
    cut = ask(http, max_tokens=12, stop_sequences=["never this", stop]).json
    assert (cut["stop_reason"], cut["stop_sequence"]) == ("stop_sequence", stop)
    assert cut["content"][0]["text"] == whole[: whole.index(stop)]
    *_, delta, _ = ask(http, max_tokens=12, stop_sequences=[stop], stream=True).named_events
    assert delta["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": stop}


def test_an_end_of_its_own_ends_the_turn(http: HttpClient) -> None:
    first = ord(ask(http, max_tokens=1).json["content"][0]["text"])
    ended = ask(http, stop_token_ids=[first]).json
    assert (ended["stop_reason"], ended["stop_sequence"]) == ("end_turn", None)
    assert ended["content"] == [{"type": "text", "text": ""}]
    start, *_, delta, _ = ask(http, stop_token_ids=[first], stream=True).named_events
    assert (start["type"], delta["delta"]["stop_reason"]) == ("message_start", "end_turn")


def test_system_prompts_and_blocks_of_text(http: HttpClient) -> None:
    def tokens(**fields: object) -> int:
        usage = ask(http, **fields).json["usage"]
        return int(usage["input_tokens"] + usage["cache_read_input_tokens"])

    plain = tokens()
    assert tokens(system="Be brief.") > plain
    blocks = [
        {"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "brief."},
    ]
    assert tokens(system=blocks) == tokens(system="Be\nbrief.")
    parts = [{"type": "text", "text": "he"}, {"type": "text", "text": "llo"}]
    assert tokens(messages=[{"role": "user", "content": parts}]) == plain + 1
    assert tokens(system="") == plain


def test_cached_tokens_are_not_among_the_input_tokens(http: HttpClient) -> None:
    long = [{"role": "user", "content": "tide and time " * 20}]
    first, again = (ask(http, messages=long).json["usage"] for _ in range(2))
    assert again["cache_read_input_tokens"] > first["cache_read_input_tokens"]
    sums = [usage["input_tokens"] + usage["cache_read_input_tokens"] for usage in (first, again)]
    assert sums[0] == sums[1]


@pytest.mark.parametrize("name", UnsupportedByMessages.__annotations__)
def test_known_parameters_that_are_not_obeyed_are_refused_by_name(http: HttpClient, name: str) -> None:
    answer = ask(http, **{name: ["something"]})
    assert answer.status == 400
    assert error_of(answer)["type"] == "invalid_request_error"
    assert error_of(answer)["message"].startswith(f"{name}: ")


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_an_answer_is_json_under_the_schema_that_is_given(http: HttpClient, name: str) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    form: dict[str, Any] = {"type": "json_schema", "schema": schema}
    asked = {name: {"format": form} if name == "output_config" else form, "max_tokens": 200, "ignore_eos": False}
    answer = ask(http, **asked)
    assert json.loads(answer.json["content"][0]["text"])["a"] in (1, 2)
    assert answer.json["stop_reason"] == "end_turn"
    streamed = ask(http, **asked, stream=True).named_events
    pieces = [event["delta"]["text"] for event in streamed if event["type"] == "content_block_delta"]
    assert json.loads("".join(pieces))["a"] in (1, 2)


def test_parameters_that_ask_for_nothing_are_let_through(http: HttpClient) -> None:
    harmless = {
        "output_config": {},
        "tools": [],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "disabled"},
        "service_tier": "auto",
    }
    assert ask(http, **harmless).status == 200


@pytest.mark.parametrize(
    ("fields", "status", "kind", "begins"),
    [
        ({"model": "none such"}, 404, "not_found_error", "model: "),
        ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens: "),
        ({"max_tokens": -1}, 400, "invalid_request_error", "max_tokens: "),
        ({"messages": []}, 400, "invalid_request_error", "messages: "),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "invalid_request_error", "messages[0].role: "),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            400,
            "invalid_request_error",
            "messages[0].content[0].type: ",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]},
            400,
            "invalid_request_error",
            "messages[0].content[0].type: ",
        ),
        ({"tools": [HOSTED], "tool_choice": {"type": "any"}}, 400, "invalid_request_error", "tool_choice: "),
        (
            {"tools": [HOSTED], "tool_choice": {"type": "tool", "name": "bash"}},
            400,
            "invalid_request_error",
            "tool_choice: there is no tool of type 'bash_20250124'",
        ),
        ({"tools": [{"name": ""}]}, 400, "invalid_request_error", "tools[0].name: "),
        ({"output_config": {"effort": 5}}, 400, "invalid_request_error", "output_config.effort: "),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"not": {}}}}},
            400,
            "invalid_request_error",
            "output_config.format: ",
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {}}}, "output_format": FORM},
            400,
            "invalid_request_error",
            "output_format: ",
        ),
        ({"tool_choice": {"type": "any"}}, 400, "invalid_request_error", "tool_choice: "),
        ({"tool_choice": {"type": "tool"}}, 400, "invalid_request_error", "tool_choice.name: "),
        ({"tool_choice": {"type": "one"}}, 400, "invalid_request_error", "tool_choice.type: "),
        ({"system": [{"type": "image"}]}, 400, "invalid_request_error", "system[0].type: "),
        ({"stop_sequences": [""]}, 400, "invalid_request_error", "stop_sequences: "),
        ({"temperature": -1}, 400, "invalid_request_error", "temperature: "),
        (
            {"messages": [{"role": "user", "content": "x " * 200_000}]},
            400,
            "invalid_request_error",
            "prompt is too long: ",
        ),
    ],
)
def test_errors(http: HttpClient, fields: dict[str, object], status: int, kind: str, begins: str) -> None:
    answer = ask(http, **fields)
    assert answer.status == status, answer.body
    error = error_of(answer)
    assert error["type"] == kind
    assert error["message"].startswith(begins)


def test_max_tokens_must_be_said(http: HttpClient) -> None:
    answer = http.post(MESSAGES, {"messages": HELLO})
    assert answer.status == 400
    assert "max_tokens" in error_of(answer)["message"]


def test_paths_and_methods(http: HttpClient) -> None:
    assert error_of(http.get(MESSAGES))["type"] == "invalid_request_error"
    unknown = http.post(f"{MESSAGES}/batches", {})
    assert (unknown.status, error_of(unknown)["type"]) == (404, "not_found_error")
    assert http.post(f"{MESSAGES}s", {}).error["code"] == "unknown_endpoint"


def test_keys_and_users(stack: Stack, tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    hashed = hashlib.sha256(b"gold").hexdigest()
    keys.write_text(f"keys:\n  - {{hash: {hashed}, tenant: acme, names_users: true, apps: [chat]}}\n")
    stack.worker("a", model="tiny")
    gateway = stack.start("gateway", scheduler=stack.addresses, keys=keys, http_listen="127.0.0.1:0")
    http = HttpClient(gateway.wait_for("listening")["http_port"])
    gateway.wait_for("ready")
    refused = http.post(MESSAGES, BODY)
    assert (refused.status, error_of(refused)["type"]) == (401, "authentication_error")
    forbidden = http.post(MESSAGES, BODY, x_api_key="gold", x_fairlead_app="other")
    assert (forbidden.status, error_of(forbidden)["type"]) == (403, "permission_error")
    named = {**BODY, "metadata": {"user_id": "ann"}}
    for headers in ({"x_api_key": "gold"}, {"authorization": "Bearer gold"}):
        assert http.post(MESSAGES, named, **headers).status == 200
        assert gateway.logged("call ended")[-1]["client"] == "acme/ann"


def test_who_cannot_be_served_now_is_told_so(stack: Stack) -> None:
    _, http = serving(stack)
    answer = ask(http)
    assert (answer.status, error_of(answer)["type"]) == (529, "overloaded_error")
    assert answer.headers["retry-after-ms"] == "1000"


def test_an_error_in_a_stream_is_an_event(stack: Stack) -> None:
    stack.worker("a", model="tiny", engine="fake:0.05")
    _, http = serving(stack)
    cut = http.post(MESSAGES, {**BODY, "max_tokens": 200, "stream": True}, x_fairlead_timeout="2")
    *_, last = cut.named_events
    assert last["type"] == "error"
    assert last["error"]["type"] == "timeout_error"
    assert last["request_id"] == cut.headers["request-id"]
