"""Responses that are stored: they are read, continued and deleted, each by its own client alone."""

from typing import Any

import pytest

from tests.metrics import samples, scrape
from tests.services import Stack, eventually
from tests.unit.gateway.http.clients import run
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import HELLO, RESPONSES, Answer, HttpClient, by
from tests.unit.gateway.http.test_openai_client import CLIENT

BODY = {"input": "hello", "max_output_tokens": 3, "ignore_eos": True, "seed": 3}
PROGRAM = """
import sys
import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="any", max_retries=0)
body = {"model": "tiny", "max_output_tokens": 4, "extra_body": {"ignore_eos": True, "seed": 1}}

first = client.responses.create(**body, input="hello")
assert first.store
assert client.responses.retrieve(first.id) == first
*_, last = client.responses.create(**body, input="and then?", previous_response_id=first.id, stream=True)
second = last.response
assert second.previous_response_id == first.id
assert client.responses.retrieve(second.id).output_text == second.output_text
told = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": first.output_text}]
again = client.responses.create(**body, input=[*told, {"role": "user", "content": "and then?"}], store=False)
assert (again.output_text, again.usage.input_tokens) == (second.output_text, second.usage.input_tokens)
assert not again.store

def missing(kind, ask, code, param):
    try:
        ask()
    except kind as error:
        assert type(error) is kind and (error.code, error.param) == (code, param), error
        assert "not found" in error.message
    else:
        raise AssertionError("it is found")

client.responses.delete(first.id)
for gone in (first.id, again.id):
    for ask in (client.responses.retrieve, client.responses.delete):
        missing(openai.NotFoundError, lambda: ask(gone), "response_not_found", None)
    ask = lambda: client.responses.create(**body, input="x", previous_response_id=gone)
    missing(openai.BadRequestError, ask, "previous_response_not_found", "previous_response_id")
third = client.responses.create(**body, input="go on", previous_response_id=second.id)
assert third.usage.input_tokens > second.usage.input_tokens, "it has the whole conversation"
print("done")
"""


def ask(http: HttpClient, headers: dict[str, str] | None = None, **fields: object) -> Answer:
    return http.post(RESPONSES, {**BODY, **fields}, **(headers or {}))


def get(http: HttpClient, response_id: str, method: str = "GET", **headers: str) -> Answer:
    return http.request(method, f"{RESPONSES}/{response_id}", b"", headers)


def text_of(response: Any) -> str:
    return str(response["output"][0]["content"][0]["text"])


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_read_as_it_was_answered(http: HttpClient, stream: bool) -> None:
    answer = ask(http, stream=stream, metadata={"a": "b"})
    response = answer.named_events[-1]["response"] if stream else answer.json
    assert response["store"] is True
    found = get(http, response["id"])
    assert (found.status, found.json) == (200, response)
    assert found.headers["content-type"] == "application/json"
    deleted = get(http, response["id"], "DELETE")
    assert (deleted.status, deleted.json) == (200, {"id": response["id"], "object": "response", "deleted": True})
    assert get(http, response["id"]).status == get(http, response["id"], "DELETE").status == 404


def test_a_missing_response_is_reported_in_the_apis_words(http: HttpClient) -> None:
    missing = get(http, "resp_1")
    assert missing.status == 404
    assert missing.error == {
        "message": "Response with id 'resp_1' not found.",
        "type": "invalid_request_error",
        "param": None,
        "code": "response_not_found",
    }
    unstored = ask(http, store=False).json
    assert unstored["store"] is False
    assert get(http, unstored["id"]).status == 404
    continued = ask(http, previous_response_id=unstored["id"])
    assert (continued.status, continued.error["code"]) == (400, "previous_response_not_found")
    assert continued.error["param"] == "previous_response_id"
    assert continued.error["message"].endswith(f"Previous response with id '{unstored['id']}' not found.")
    assert len(get(http, "x" * 5000).error["message"]) < 200
    for method, path, status in (("POST", "resp_1", 405), ("GET", "resp_1/input_items", 404), ("GET", "", 405)):
        assert http.request(method, f"{RESPONSES}/{path}", b"", {}).status == status


def test_a_conversation_goes_on_without_the_instructions_of_before(http: HttpClient) -> None:
    first = ask(http, instructions="Be brief.", input=[{"role": "developer", "content": "In rhyme."}, *HELLO]).json
    second = ask(http, input="Why?", previous_response_id=first["id"], instructions="Be long.").json
    assert second["previous_response_id"] == first["id"]
    third = ask(http, input="And?", previous_response_id=second["id"]).json
    turns = [
        {"role": "system", "content": "In rhyme."},
        *HELLO,
        {"role": "assistant", "content": text_of(first)},
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": text_of(second)},
        {"role": "user", "content": "And?"},
    ]
    told = ask(http, input=turns, store=False).json
    assert (text_of(told), told["usage"]["input_tokens"]) == (text_of(third), third["usage"]["input_tokens"])
    told = ask(http, input=turns[:4], instructions="Be long.", store=False).json
    assert (text_of(told), told["usage"]["input_tokens"]) == (text_of(second), second["usage"]["input_tokens"])
    branch = ask(http, input="And?", previous_response_id=first["id"]).json
    assert branch["usage"]["input_tokens"] < third["usage"]["input_tokens"], "one response may be continued twice"


def test_a_continued_response_is_in_the_interaction_of_the_one_before(http: HttpClient) -> None:
    def interaction(answer: Answer) -> str:
        assert answer.status == 200, answer.body
        return answer.headers.get("x-fairlead-interaction", "").partition(";")[0]

    first = ask(http, {"x_session_id": "agent"})
    assert interaction(first) == "agent"
    second = ask(http, previous_response_id=first.json["id"])
    assert interaction(second) == "agent"
    assert interaction(ask(http, {"x_session_id": "other"}, previous_response_id=second.json["id"])) == "agent"
    chosen = ask(http, {"x_fairlead_interaction": "chosen"}, previous_response_id=second.json["id"])
    assert interaction(chosen) == "chosen"
    alone = ask(http)
    assert interaction(alone) == ""
    for _ in range(2):
        continued = ask(http, previous_response_id=alone.json["id"])
        assert interaction(continued) == alone.json["id"]
    assert interaction(ask(http, previous_response_id=continued.json["id"])) == alone.json["id"]


def test_a_response_belongs_to_its_user(http_with_keys: HttpClient) -> None:
    http = http_with_keys
    told = ask(http, by("backend"), user="ann").json
    anns, referred = told["id"], [{"type": "item_reference", "id": told["output"][0]["id"]}]
    for headers in (by("backend", "ann"), by("backend")):
        assert get(http, anns, **headers).status == 200, "the user, and the key that may name it"
        assert ask(http, headers, previous_response_id=anns).status == 200
        assert ask(http, headers, input=referred).status == 200
    assert ask(http, by("backend"), previous_response_id=anns, user="ann").status == 200
    for headers in (by("backend", "bob"), by("plain"), by("other")):
        assert get(http, anns, **headers).status == get(http, anns, "DELETE", **headers).status == 404
        assert ask(http, headers, previous_response_id=anns).error["code"] == "previous_response_not_found"
        assert ask(http, headers, input=referred).error["param"] == "input[0].id"
    assert ask(http, by("backend"), previous_response_id=anns, user="bob").status == 400
    assert get(http, anns).status == 401
    tenants = ask(http, by("plain")).json["id"]
    assert get(http, tenants, **by("backend")).status == 200
    assert get(http, tenants, **by("backend", "ann")).status == 404
    assert get(http, anns, "DELETE", **by("backend", "ann")).status == 200


def test_without_room_nothing_is_stored_and_the_answer_says_so(shared_stack: Stack) -> None:
    _, http = serving(shared_stack, response_store_mib=0)
    for stream in (False, True):
        answer = ask(http, store=True, stream=stream)
        response = answer.named_events[-1]["response"] if stream else answer.json
        assert response["store"] is False
        assert get(http, response["id"]).status == 404


def test_the_latest_responses_are_stored_as_far_as_there_is_room(shared_stack: Stack) -> None:
    gateway, http = serving(shared_stack, response_store_mib=1, metrics="127.0.0.1:0")
    ids = [ask(http, metadata={"a": "x" * (2**20 // 8)}).json["id"] for _ in range(9)]
    assert [get(http, each).status for each in ids] == [404] * 2 + [200] * 7
    port = gateway.logged("listening")[0]["metrics_port"]
    eventually(lambda: 2**20 // 8 * 7 < stored_bytes(port) <= 2**20, "it is told how much is stored")


def stored_bytes(metrics_port: int) -> float:
    [(_, value)] = samples(scrape(metrics_port)[1])["fairlead_responses_stored_bytes"]
    return value


def test_a_response_is_forgotten_when_its_time_is_over(shared_stack: Stack) -> None:
    _, http = serving(shared_stack, response_store_seconds=0.001)
    stored = ask(http).json
    assert stored["store"] is True
    eventually(lambda: get(http, stored["id"]).status == 404, "it is forgotten")


def test_openais_client(http: HttpClient) -> None:
    assert run(CLIENT, PROGRAM, f"http://127.0.0.1:{http.port}/v1") == "done\n"
