"""How a chat is rendered: parameters of chat completions and of /tokenize, as vLLM has them."""

from typing import Any

import pytest
from google.protobuf import struct_pb2

from fairlead.errors import InvalidRequest
from gateway.validation import (
    MAX_TEMPLATE_BYTES,
    MAX_TEMPLATE_DEPTH,
    RESERVED_VARIABLES,
    TEMPLATE_KWARGS,
    check_template_kwargs,
)
from tests.unit.gateway.http.http_client import CHAT, HELLO, MESSAGES, HttpClient

BEGUN = [*HELLO, {"role": "assistant", "content": "Well, "}]
DEEP: Any = None
for _ in range(MAX_TEMPLATE_DEPTH):
    DEEP = {"a": DEEP}


def rendered(http: HttpClient, messages: object, **fields: object) -> str:
    """The prompt that is made of `messages`: the fake engine's template writes a line for each of them."""
    body = {"messages": messages, **fields}
    tokens = http.post("/tokenize", body).json["tokens"]
    used = http.post(CHAT, {**body, "max_tokens": 1}).json["usage"]["prompt_tokens"]
    assert used == len(tokens), "a chat completion has the same prompt"
    return str(http.post("/detokenize", {"tokens": tokens}).json["prompt"])


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, "user: hello\nassistant: "),
        ({"add_generation_prompt": True, "continue_final_message": False}, "user: hello\nassistant: "),
        ({"add_generation_prompt": None, "chat_template_kwargs": None}, "user: hello\nassistant: "),
        ({"add_generation_prompt": False}, "user: hello\n"),
        ({"continue_final_message": True}, "user: hello"),
        ({"continue_final_message": True, "add_generation_prompt": False}, "user: hello"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "user: hello\nenable_thinking: false\nassistant: "),
        (
            {"chat_template_kwargs": {"b": {"z": [1, -2.5, None], "y": "ö"}, "a": 2**40}},
            'user: hello\na: 1099511627776\nb: {"y": "\\u00f6", "z": [1, -2.5, null]}\nassistant: ',
        ),
    ],
)
def test_a_chat_is_rendered_by_the_template(http: HttpClient, fields: dict[str, Any], prompt: str) -> None:
    assert rendered(http, HELLO, **fields) == prompt


def test_an_answer_that_has_begun_is_continued(http: HttpClient) -> None:
    continued = rendered(http, BEGUN, continue_final_message=True)
    assert continued == "user: hello\nassistant: Well, "
    counted = http.post(f"{MESSAGES}/count_tokens", {"messages": BEGUN}).json["input_tokens"]
    assert counted == len(continued), "Anthropic's API continues the assistant's last message without being told to"
    answer = http.post(MESSAGES, {"messages": BEGUN, "max_tokens": 2})
    assert (answer.status, answer.json["usage"]["output_tokens"]) == (200, 2)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"continue_final_message": 1}, "continue_final_message"),
        ({"add_generation_prompt": "yes"}, "add_generation_prompt"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"a": "x" * MAX_TEMPLATE_BYTES}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"a": [1] * (MAX_TEMPLATE_BYTES // 5)}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"a": 10**400}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"a": DEEP}}, "chat_template_kwargs.a"),
        *(
            ({"chat_template_kwargs": {name: "x"}}, f"chat_template_kwargs.{name}")
            for name in sorted(RESERVED_VARIABLES)
        ),
    ],
)
def test_fields_that_a_template_cannot_be_given_are_refused(
    http: HttpClient, fields: dict[str, Any], param: str
) -> None:
    for path in (CHAT, "/tokenize"):
        answer = http.post(path, {"messages": HELLO, **fields})
        assert answer.status == 400, answer.body
        assert answer.error["param"] == param


def test_over_grpc_a_number_may_be_none() -> None:
    kwargs = struct_pb2.Struct()
    kwargs.update({"a": [1, float("nan")]})
    with pytest.raises(InvalidRequest, match="finite") as caught:
        check_template_kwargs(kwargs, TEMPLATE_KWARGS)
    assert caught.value.field == f"{TEMPLATE_KWARGS}.a"
