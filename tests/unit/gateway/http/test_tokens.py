"""Tokens of prompts and chats, and back to text; a worker's fake tokenizer has a token for each byte."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from gateway.http.tokens import UnsupportedByTokenize
from tests.services import Stack
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import (
    CHAT,
    COUNT,
    DETOKENIZE,
    HELLO,
    INPUT_TOKENS,
    RESPONSES,
    TOKENIZE,
    HttpClient,
)


def test_a_prompt_and_back(http: HttpClient) -> None:
    told = http.post(TOKENIZE, {"model": "tiny", "prompt": "Ebb \U0001f30a", "add_special_tokens": False}).json
    assert told == {"count": 8, "max_model_len": 2048, "tokens": list("Ebb \U0001f30a".encode()), "token_strs": None}
    assert http.post(DETOKENIZE, {"model": "tiny", "tokens": told["tokens"]}).json == {"prompt": "Ebb \U0001f30a"}


def test_a_chat_has_the_tokens_that_it_is_answered_with(http: HttpClient) -> None:
    system = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
    told = http.post(TOKENIZE, {"messages": [system, *HELLO]}).json
    used = http.post(CHAT, {"messages": [system, *HELLO], "max_tokens": 1}).json["usage"]["prompt_tokens"]
    assert told["count"] == len(told["tokens"]) == used
    counted = http.post(COUNT, {"model": "tiny", "system": "Be brief.", "messages": HELLO})
    assert counted.json == {"input_tokens": used}
    assert counted.headers["request-id"]


def test_a_response_has_the_input_tokens_that_are_counted(http: HttpClient) -> None:
    """Also one that continues another, which only the caller of that one may do."""
    first = http.post(RESPONSES, {"instructions": "Be brief.", "input": "hello", "max_output_tokens": 2}).json
    for fields in ({"instructions": "Be brief."}, {"previous_response_id": first["id"]}):
        body = {"model": "tiny", "input": "hello", **fields}
        used = http.post(RESPONSES, {**body, "max_output_tokens": 1}).json["usage"]["input_tokens"]
        assert http.post(INPUT_TOKENS, body).json == {"object": "response.input_tokens", "input_tokens": used}
    unknown = http.post(INPUT_TOKENS, {"input": "hello", "previous_response_id": "resp_0"})
    assert (unknown.status, unknown.error["code"]) == (400, "previous_response_not_found")
    assert (
        http.post(INPUT_TOKENS, {"input": "hello", "tools": [{"type": "function"}]}).error["param"] == "tools[0].name"
    )


@pytest.mark.parametrize(
    ("path", "fields", "status", "param"),
    [
        (TOKENIZE, {}, 400, "prompt"),
        (TOKENIZE, {"prompt": "x", "messages": HELLO}, 400, "prompt"),
        (TOKENIZE, {"prompt": ""}, 400, "prompt"),
        (TOKENIZE, {"prompt": "x" * 100_000}, 400, "prompt"),
        (TOKENIZE, {"prompt": "x", "model": "none"}, 404, "model"),
        (TOKENIZE, {"messages": HELLO, "add_special_tokens": True}, 400, "add_special_tokens"),
        (TOKENIZE, {"messages": []}, 400, "messages"),
        (DETOKENIZE, {}, 400, "tokens"),
        (DETOKENIZE, {"tokens": []}, 400, "tokens"),
        (DETOKENIZE, {"tokens": [1000]}, 400, "tokens"),
        (DETOKENIZE, {"tokens": [-1]}, 400, "tokens[0]"),
        (DETOKENIZE, {"tokens": "x"}, 400, "tokens"),
        (DETOKENIZE, {"tokens": [1], "model": "none"}, 404, "model"),
        *[(TOKENIZE, {"prompt": "x", name: ["x"]}, 400, name) for name in UnsupportedByTokenize.__annotations__],
    ],
)
def test_errors(http: HttpClient, path: str, fields: dict[str, Any], status: int, param: str | None) -> None:
    answer = http.post(path, fields)
    assert answer.status == status, answer.body
    assert answer.error["param"] == param


def test_a_count_is_refused_in_its_own_form(http: HttpClient) -> None:
    answer = http.post(COUNT, {"messages": HELLO, "tools": [{"name": ""}]})
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith("tools[0].name: ")


def test_only_who_has_a_key_is_told(stack: Stack, tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"keys:\n  - {{hash: {hashlib.sha256(b'gold').hexdigest()}, tenant: acme}}\n")
    stack.worker("a")
    gateway = stack.start("gateway", scheduler=stack.addresses, keys=keys, http_listen="127.0.0.1:0")
    http = HttpClient(gateway.wait_for("listening")["http_port"])
    gateway.wait_for("ready")
    for path in (TOKENIZE, DETOKENIZE, COUNT, INPUT_TOKENS):
        assert http.post(path, b"not read before it is known who calls").status == 401
    assert http.post(TOKENIZE, {"prompt": "x"}, authorization="Bearer gold").status == 200


def test_a_client_may_have_so_many_under_way(stack: Stack) -> None:
    stack.worker("a", engine="fake:0.02")
    _, http = serving(stack, max_streams_per_client=1)
    with http.begin(CHAT, {"messages": HELLO, "max_tokens": 1900, "ignore_eos": True, "stream": True}) as stream:
        assert stream.recv(12) == b"HTTP/1.1 200"
        for path, fields in ((TOKENIZE, {"prompt": "x"}), (DETOKENIZE, {"tokens": [1]})):
            answer = http.post(path, fields)
            assert (answer.status, answer.error["code"]) == (429, "client_limit")
