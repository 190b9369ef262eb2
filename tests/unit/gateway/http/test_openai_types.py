"""Every answer and every event fits the types of OpenAI's client, which are generated from OpenAI's OpenAPI schema.

The client itself is lenient: it builds its types of whatever it gets. Here the bytes that come are validated in
pydantic's strict mode, and a field that is missing, or that the schema does not know, fails as well.
"""

import pytest

from tests.unit.gateway.http.clients import run
from tests.unit.gateway.http.http_client import HttpClient
from tests.unit.gateway.http.test_openai_client import CLIENT

HEAD = """
import json, sys, urllib.error, urllib.request
from typing import Literal, Optional

from openai.types import Completion, CompletionChoice, CompletionUsage, ErrorObject, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel, ConfigDict


class ModelPage(BaseModel):  # as GET /v1/models answers; the client reads it as a page of its own
    object: Literal["list"]
    data: list[Model]


class Failure(BaseModel):
    model_config = ConfigDict(extra="forbid")
    error: ErrorObject


class PieceChoice(CompletionChoice):  # OpenAI streams null until a choice ends; its schema does not tell so
    finish_reason: Optional[Literal["stop", "length", "content_filter"]]


class Piece(Completion):
    choices: list[PieceChoice]


# Fields that an answer always has, though the client's types let it leave them out or know nothing of them.
ALWAYS = {
    "ChatCompletion": {"usage"}, "Completion": {"usage"}, "CompletionUsage": {"prompt_tokens_details"},
    "Choice": {"logprobs", "finish_reason"}, "CompletionChoice": {"logprobs"}, "PieceChoice": {"logprobs"},
    "ChatCompletionMessage": {"content", "refusal"}, "ErrorObject": {"code", "param"},
    "Model": {"root", "parent", "max_model_len"},
}
STOPPED = {"Choice", "CompletionChoice", "PieceChoice"}  # which have vLLM's stop_reason
EXTRA = {"Model": {"root", "parent", "max_model_len"}} | dict.fromkeys(STOPPED, {"stop_reason"})


def check_fields(value):
    if isinstance(value, list):
        for each in value:
            check_fields(each)
    elif isinstance(value, BaseModel):
        name = type(value).__name__
        missing = ALWAYS.get(name, set()) - value.model_fields_set
        assert not missing, f"{name} has no {missing}"
        unknown = set(value.model_extra or ()) - EXTRA.get(name, set())
        assert not unknown, f"{name} has {unknown}, which the schema does not know"
        for field in type(value).model_fields:
            check_fields(getattr(value, field))


def checked(kind, data):
    value = kind.model_validate_json(data, strict=True)
    check_fields(value)
    return value


def ask(path, body=None):
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(sys.argv[1] + path, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, answer.read()


def whole(path, kind, body=None):
    status, data = ask(path, body)
    assert status == 200, data
    return checked(kind, data)


def stream(path, kind, body):
    status, data = ask(path, body | {"stream": True})
    assert status == 200, data
    *events, done, end = data.decode().split("\\n\\n")
    assert (done, end) == ("data: [DONE]", "")
    return [checked(kind, event.removeprefix("data: ")) for event in events]


def refused(path, status, body=None):
    got, data = ask(path, body)
    assert got == status, (got, data)
    return checked(Failure, data).error


CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USAGE = {"stream_options": {"include_usage": True}}
"""
CHATS = """
hello = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "ignore_eos": True}
parts = {"messages": [{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}
named = {"model": "tiny", "temperature": 0, "stop": ["never"], "seed": 3, "user": "someone", "metadata": {"a": "b"}}
likely = {"logprobs": True, "top_logprobs": 2, "tools": []}
for fields in ({}, {"n": 2}, parts, named, {"max_completion_tokens": 2}, likely):
    answer = whole(CHAT, ChatCompletion, hello | fields)
    choices = fields.get("n", 1)
    assert [choice.index for choice in answer.choices] == list(range(choices))
    assert {choice.message.role for choice in answer.choices} == {"assistant"}
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    for with_usage in (True, False):
        chunks = stream(CHAT, ChatCompletionChunk, hello | fields | (USAGE if with_usage else {}))
        assert len({chunk.id for chunk in chunks}) == 1
        assert all(("usage" in chunk.model_fields_set) == with_usage for chunk in chunks)
        if with_usage:
            *chunks, last = chunks
            assert last.choices == [] and last.usage.completion_tokens == usage.completion_tokens
            check_fields(last.usage)
        for index in range(choices):
            own = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == index]
            assert own[0].delta.role == "assistant" and all(each.delta.role is None for each in own[1:])
            assert [each.finish_reason for each in own] == [None] * (len(own) - 1) + ["length"]
print("done")
"""
COMPLETIONS = """
prompts = (("ab", 1), (["ab", "cd"], 2), ([5, 6, 7], 1), ([[5, 6], [7]], 2))
for prompt, count in prompts:
    texts = prompt == "ab" or prompt == ["ab", "cd"]
    for fields in ({}, {"n": 2}, {"logprobs": 2}, *([{"echo": True}] if texts else [])):
        body = {"prompt": prompt, "max_tokens": 4, "ignore_eos": True} | fields
        choices = count * fields.get("n", 1)
        answer = whole(TEXT, Completion, body)
        assert [choice.index for choice in answer.choices] == list(range(choices))
        assert answer.usage.completion_tokens == 4 * choices
        for with_usage in (True, False):
            pieces = stream(TEXT, Piece, body | (USAGE if with_usage else {}))
            if with_usage:
                *pieces, last = pieces
                assert last.choices == [] and last.usage == answer.usage
            ends = [piece.choices[0] for piece in pieces if piece.choices[0].finish_reason]
            assert sorted(end.index for end in ends) == list(range(choices))
print("done")
"""
REST = """
[model] = whole("/v1/models", ModelPage).data
assert whole("/v1/models/tiny", Model) == model

body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
cases = [
    (CHAT, 400, b"no JSON"), (CHAT, 400, b"[]"), (CHAT, 400, {}), (CHAT, 400, {"messages": []}),
    (CHAT, 400, body | {"temperature": -1}), (CHAT, 400, body | {"tools": [{}]}), (CHAT, 400, body | {"n": "two"}),
    (CHAT, 404, body | {"model": "none"}),
    (CHAT, 405, None), ("/v1/models", 405, {}),
    (TEXT, 400, {}), (TEXT, 400, {"prompt": []}), (TEXT, 400, {"prompt": [5], "echo": True}),
    ("/v1/models/none", 404, None), ("/v1/embeddings", 404, {"input": "x"}), ("/nothing", 404, None),
]
for path, status, sent in cases:
    error = refused(path, status, sent)
    assert error.type == "invalid_request_error" and error.code and error.message, error
print("done")
"""


@pytest.mark.parametrize("program", [CHATS, COMPLETIONS, REST], ids=["chat", "completions", "models and errors"])
def test_answers_have_the_published_types(http: HttpClient, program: str) -> None:
    assert run(CLIENT, HEAD + program, f"http://127.0.0.1:{http.port}") == "done\n"
