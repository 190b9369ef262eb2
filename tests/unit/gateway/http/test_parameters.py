"""Every parameter that the published clients know is obeyed, refused by name, or told to be ignored."""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.http.chat_completions import ChatCompletionRequest
from gateway.http.completions import CompletionRequest
from gateway.http.messages import Conversation, MessagesRequest
from gateway.http.responses_request import ResponsesRequest
from gateway.http.tokens import DetokenizeRequest, TokenizeRequest
from tests.unit.gateway.http.clients import run
from tests.unit.gateway.http.http_client import (
    CHAT,
    COUNT,
    DETOKENIZE,
    HELLO,
    INPUT_TOKENS,
    MESSAGES,
    RESPONSES,
    TEXT,
    TOKENIZE,
    HttpClient,
)
from tests.unit.gateway.http.test_anthropic_client import CLIENT as ANTHROPIC
from tests.unit.gateway.http.test_openai_client import CLIENT as OPENAI

DOCUMENT = Path(__file__).parents[4] / "docs/http.md"
PROGRAM = """
import importlib, json, sys

known = {}
for parameters in sys.argv[1:]:
    module, name = parameters.rsplit(".", 1)
    known[parameters] = sorted(getattr(importlib.import_module(module), name).__annotations__)
print(json.dumps(known))
"""
REQUESTS: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "openai.types.chat.completion_create_params.CompletionCreateParamsBase": (OPENAI, ChatCompletionRequest),
    "openai.types.completion_create_params.CompletionCreateParamsBase": (OPENAI, CompletionRequest),
    "openai.types.responses.response_create_params.ResponseCreateParamsBase": (OPENAI, ResponsesRequest),
    "anthropic.types.message_create_params.MessageCreateParamsBase": (ANTHROPIC, MessagesRequest),
    "anthropic.types.beta.message_create_params.MessageCreateParamsBase": (ANTHROPIC, MessagesRequest),
}
BEGUN = [*HELLO, {"role": "assistant", "content": "Well, "}]


@cache
def known_to(client: str) -> dict[str, list[str]]:
    """Return the parameters of each request that a client sends, read in one process because imports take long."""
    return json.loads(run(client, PROGRAM, *(name for name, (of, _) in REQUESTS.items() if of == client)))


def ignored() -> set[str]:
    """What the document tells to be ignored."""
    rows = re.findall(r"^\| every other field.*$|`\w+` is ignored", DOCUMENT.read_text(), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize("parameters", REQUESTS)
def test_no_parameter_is_ignored_that_the_document_does_not_name(parameters: str) -> None:
    client, request = REQUESTS[parameters]
    known = known_to(client)[parameters]
    assert set(known) - set(request.__struct_fields__) <= ignored()


def test_every_parameter_that_is_refused_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    for _, request in REQUESTS.values():
        for kind in request.__mro__:
            if kind.__name__.startswith("Unsupported"):
                missing = {name for name in kind.__annotations__ if f"`{name}`" not in text}
                assert not {name for name in missing if not name.startswith("guided_")}, kind


def test_special_tokens_are_those_of_the_api(http: HttpClient) -> None:
    """A template adds them to a chat, the tokenizer to a text: nothing else can be asked for."""
    for own, ask in ((False, http.chat), (True, http.complete)):
        assert ask(add_special_tokens=own).status == 200
        assert ask(add_special_tokens=not own).error["param"] == "add_special_tokens"


def test_the_least_top_p_of_the_apis_is_taken(http: HttpClient) -> None:
    assert (
        http.chat(top_p=0).status == http.post(MESSAGES, {"messages": HELLO, "max_tokens": 1, "top_p": 0}).status == 200
    )
    assert http.chat(top_p=-0.1).error["param"] == "top_p"


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_may_echo_what_it_continues(http: HttpClient, stream: bool) -> None:
    body = {"messages": BEGUN, "max_tokens": 4, "seed": 1, "ignore_eos": True, "stream": stream, "n": 2}

    def texts(**fields: object) -> list[str]:
        answer = http.post(CHAT, {**body, "continue_final_message": True, **fields})
        assert answer.status == 200, answer.body
        told = ["", ""]
        for part in answer.events if stream else [answer.json]:
            for choice in part["choices"]:
                told[choice["index"]] += (choice["delta"] if stream else choice["message"]).get("content", "")
        return told

    assert texts(echo=True) == ["Well, " + text for text in texts()]
    assert texts(echo=True, messages=HELLO) == texts(messages=HELLO), "only an answer is part of the answer"


BODIES: Sequence[type[msgspec.Struct]] = (
    *(request for _, request in REQUESTS.values()),
    Conversation,
    TokenizeRequest,
    DetokenizeRequest,
)
SMALLEST: dict[str, dict[str, object]] = {
    CHAT: {"messages": HELLO, "max_tokens": 1},
    TEXT: {"prompt": "hello", "max_tokens": 1},
    MESSAGES: {"messages": HELLO, "max_tokens": 1},
    RESPONSES: {"input": "hello", "max_output_tokens": 1},
    COUNT: {"messages": HELLO},
    INPUT_TOKENS: {"input": "hello"},
    TOKENIZE: {"prompt": "hello"},
    DETOKENIZE: {"tokens": [104]},
}
KNOWN: dict[str, type[msgspec.Struct]] = {
    CHAT: ChatCompletionRequest,
    TEXT: CompletionRequest,
    MESSAGES: MessagesRequest,
    RESPONSES: ResponsesRequest,
    COUNT: Conversation,
    INPUT_TOKENS: ResponsesRequest,
    TOKENIZE: TokenizeRequest,
    DETOKENIZE: DetokenizeRequest,
}


def structs(kinds: Iterable[type[msgspec.Struct]]) -> dict[type[msgspec.Struct], None]:
    """All types of objects that bodies of these types hold, in the order in which they are found."""
    found: dict[type[msgspec.Struct], None] = {}
    waiting: list[Any] = list(msgspec.inspect.multi_type_info(kinds))
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, msgspec.inspect.StructType) and kind.cls not in found:
            found[kind.cls] = None
            waiting += [field.type for field in kind.fields]
        waiting += getattr(kind, "types", ())
        waiting += [inner for name in ("item_type", "value_type") if (inner := getattr(kind, name, None)) is not None]
    return found


@pytest.mark.parametrize("kind", structs(BODIES), ids=lambda kind: kind.__name__)
def test_null_is_the_absence_of_an_optional_field(kind: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(kind):
        if not field.required:
            msgspec.convert(None, field.type)


@pytest.mark.parametrize("path", SMALLEST)
def test_a_body_of_nulls_asks_for_nothing(http: HttpClient, path: str) -> None:
    body = {**dict.fromkeys(KNOWN[path].__struct_fields__), **SMALLEST[path]}
    answer = http.post(path, {**body, "unheard_of": None})
    assert answer.status == 200, answer.body
    assert "x-fairlead-ignored" not in answer.headers
