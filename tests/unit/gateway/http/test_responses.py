"""OpenAI's Responses, whole and streamed, by the letter of the API."""

from typing import Any

import pytest

from gateway.http.responses_request import UnsupportedByResponses
from tests.services import Process, Stack
from tests.unit.gateway.http.clients import run
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import HELLO, RESPONSES, Answer, HttpClient
from tests.unit.gateway.http.test_openai_client import CLIENT

BODY = {"model": "tiny", "input": "hello", "max_output_tokens": 6, "ignore_eos": True, "seed": 3}
PROGRAM = """
import sys
import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="any", max_retries=0)
body = {"model": "tiny", "input": "hello", "max_output_tokens": 6, "extra_body": {"ignore_eos": True, "seed": 1}}

def checked(model):
    type(model).model_validate(model.model_dump(), strict=True)
    return model

whole = checked(client.responses.create(**body, instructions="Be brief.", store=False))
assert isinstance(whole, openai.types.responses.Response) and whole._request_id in whole.id
assert len(whole.output_text) == 6 and whole.usage.output_tokens == 6
assert whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens"
events = [checked(event) for event in client.responses.create(**body, instructions="Be brief.", stream=True)]
assert [event.sequence_number for event in events] == list(range(len(events)))
deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
assert "".join(deltas) == whole.output_text == events[-1].response.output_text
body["extra_body"]["stop_token_ids"] = [ord(whole.output_text[-1])]
ended = checked(client.responses.create(**body, instructions="Be brief."))
assert ended.status == "completed" and whole.output_text.startswith(ended.output_text)
with client.responses.stream(**body, instructions="Be brief.") as stream:
    assert "".join(event.delta for event in stream if event.type == "response.output_text.delta") == ended.output_text
    assert stream.get_final_response().output_text == ended.output_text
del body["extra_body"]["stop_token_ids"]
body["max_output_tokens"] = 1900
try:
    for event in client.responses.create(**body, stream=True, extra_headers={"x-fairlead-timeout": sys.argv[2]}):
        assert event.type.startswith("response.")
except openai.APIError as error:
    assert error.code == "deadline_exceeded", error
else:
    raise AssertionError("an error is not seen")
print("done")
"""


def ask(http: HttpClient, **fields: object) -> Answer:
    return http.post(RESPONSES, {**BODY, **fields})


def test_a_whole_response(http: HttpClient) -> None:
    answer = ask(http, metadata={"a": "b"})
    assert answer.status == 200
    response = answer.json
    assert response["id"] == f"resp_{answer.headers['x-request-id']}"
    assert (response["object"], response["model"], response["store"]) == ("response", "tiny", True)
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    [message] = response["output"]
    assert (message["type"], message["role"], message["status"]) == ("message", "assistant", "incomplete")
    [part] = message["content"]
    assert part["type"] == "output_text"
    assert len(part["text"]) == 6
    usage = response["usage"]
    assert usage["output_tokens"] == 6
    assert usage["total_tokens"] == usage["input_tokens"] + 6
    assert response["metadata"] == {"a": "b"}


def test_a_stream_by_the_letter(http: HttpClient) -> None:
    events = ask(http, stream=True).named_events
    created, running, item, part, *deltas, text, part_done, item_done, end = events
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in (created, running, item, part)] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert created["response"]["status"] == running["response"]["status"] == "in_progress"
    assert created["response"]["output"] == item["item"]["content"] == []
    assert part["part"]["text"] == ""
    assert {delta["type"] for delta in deltas} == {"response.output_text.delta"}
    whole = ask(http).json["output"][0]["content"][0]["text"]
    assert "".join(delta["delta"] for delta in deltas) == whole
    assert (text["type"], text["text"]) == ("response.output_text.done", whole)
    assert (part_done["type"], part_done["part"]["text"]) == ("response.content_part.done", whole)
    assert (item_done["type"], item_done["item"]["content"]) == ("response.output_item.done", [part_done["part"]])
    assert (end["type"], end["response"]["output"]) == ("response.incomplete", [item_done["item"]])
    assert {event["item_id"] for event in (part, *deltas, text, part_done)} == {item["item"]["id"]}


def test_an_output_that_ends_of_itself_is_complete(http: HttpClient) -> None:
    first = ord(ask(http, max_output_tokens=1).json["output"][0]["content"][0]["text"])
    response = ask(http, stop_token_ids=[first]).json
    assert (response["status"], response["incomplete_details"]) == ("completed", None)
    end = ask(http, stop_token_ids=[first], stream=True).named_events[-1]
    assert (end["type"], end["response"]["status"]) == ("response.completed", "completed")


def test_every_form_of_the_input(http: HttpClient) -> None:
    def tokens(**fields: object) -> int:
        return int(ask(http, **fields).json["usage"]["input_tokens"])

    plain = tokens()
    assert tokens(input=HELLO) == plain
    parts = [{"type": "input_text", "text": "hello"}]
    assert tokens(input=[{"type": "message", "role": "user", "content": parts}]) == plain
    instructed = tokens(instructions="Be brief.")
    for role in ("system", "developer"):
        assert tokens(input=[{"role": role, "content": "Be brief."}, *HELLO]) == instructed
    said = {"role": "assistant", "content": "yes"}
    again = {**said, "id": "msg_1", "content": [{"type": "output_text", "text": "yes", "annotations": []}]}
    assert tokens(input=[*HELLO, again, *HELLO]) == tokens(input=[*HELLO, said, *HELLO])


def test_without_a_bound_the_rest_of_the_context_is_allowed(http: HttpClient) -> None:
    response = ask(http, max_output_tokens=None).json
    assert response["usage"]["total_tokens"] == 2048
    assert response["max_output_tokens"] is None


@pytest.mark.parametrize("name", UnsupportedByResponses.__annotations__)
def test_known_parameters_that_are_not_obeyed_are_refused_by_name(http: HttpClient, name: str) -> None:
    answer = ask(http, **{name: ["something"]})
    assert answer.status == 400
    assert answer.error["param"] == name


def test_parameters_that_ask_for_nothing_are_let_through(http: HttpClient) -> None:
    harmless = {"store": False, "tools": [], "reasoning": {"effort": "none"}, "truncation": "disabled", "unheard_of": 1}
    assert ask(http, **harmless).status == 200


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"store": "yes"}, "store", "invalid_request"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "previous_response_not_found"),
        ({"conversation": "conv_1"}, "conversation", "invalid_request"),
        ({"conversation": {"id": "conv_1"}}, "conversation", "invalid_request"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt.id", "invalid_request"),
        ({"input": None}, "input", "invalid_request"),
        ({"input": []}, "input", "invalid_request"),
        ({"input": ""}, "input", "invalid_request"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].id", "invalid_request"),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input[0].type", "invalid_request"),
        ({"input": [{"type": "web_search_call"}]}, "input", "invalid_request"),
        ({"include": ["message.output_text.logprobs"]}, "include", "invalid_request"),
        ({"input": [{"type": "function_call"}]}, "input[0].name", "invalid_request"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice", "invalid_request"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "invalid_request"),
        ({"tools": [{"type": "custom"}]}, "tools[0].name", "invalid_request"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_request"),
        ({"input": [{"content": "x"}]}, "input[0].role", "invalid_request"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role", "invalid_request"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0].type",
            "invalid_request",
        ),
        ({"max_output_tokens": 0}, "max_output_tokens", "invalid_request"),
        ({"input": "x " * 200_000}, "input", "context_length_exceeded"),
        ({"metadata": {"a": 1}}, "metadata", "invalid_request"),
    ],
)
def test_errors(http: HttpClient, fields: dict[str, Any], param: str, code: str) -> None:
    answer = ask(http, **fields)
    assert answer.status == 400, answer.body
    assert (answer.error["param"], answer.error["code"]) == (param, code)


def test_an_error_in_a_stream_is_an_event(stack: Stack) -> None:
    stack.worker("a", model="tiny", engine="fake:0.05")
    _, http = serving(stack)
    cut = http.post(RESPONSES, {**BODY, "max_output_tokens": 200, "stream": True}, x_fairlead_timeout="2")
    *events, last = cut.named_events
    assert (last["type"], last["code"]) == ("error", "deadline_exceeded")
    assert last["sequence_number"] == len(events)
    assert last["error"]["message"] == last["message"]


def test_openais_client(shared: tuple[Process, HttpClient]) -> None:
    _, http = shared
    assert run(CLIENT, PROGRAM, f"http://127.0.0.1:{http.port}/v1", "0.001") == "done\n"


@pytest.mark.parametrize(
    ("field", "value"), [("metadata", {"x": "x" * 2**18}), ("tool_choice", {"type": "auto", "x": "x" * 2**18})]
)
def test_an_answer_does_not_repeat_megabytes(http: HttpClient, field: str, value: object) -> None:
    refused = http.post(RESPONSES, {**BODY, field: value})
    assert refused.status == 400
    assert refused.error["param"] == field
    assert "262144 bytes" in refused.error["message"]
