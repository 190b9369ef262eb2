"""Log-probabilities with the words of their tokens, and biases, in chat completions and completions."""

import json
import math
from typing import Any

import msgspec
import pytest

from fairlead.v1 import common_pb2
from gateway.core.call_events import OutputChunk
from gateway.http.logprobs import LEAST, ChatLogprobs, Logprobs, TextLogprobs
from tests.unit.gateway.http.http_client import CHAT, HELLO, TEXT, HttpClient

HALF = -math.log(2)


def entry(token: bytes, logprob: float, *top: tuple[bytes, float]) -> common_pb2.TokenLogprobs:
    return common_pb2.TokenLogprobs(
        token=token, logprob=logprob, top_tokens=[each for each, _ in top], top_logprobs=[value for _, value in top]
    )


def test_a_chat_has_tokens_with_bytes_and_the_most_likely_ones(http: HttpClient) -> None:
    [choice] = http.chat(max_tokens=6, ignore_eos=True, logprobs=True, top_logprobs=2).json["choices"]
    content = choice["logprobs"]["content"]
    assert "".join(each["token"] for each in content) == choice["message"]["content"]
    for each in content:
        assert bytes(each["bytes"]).decode() == each["token"]
        first, second = each["top_logprobs"]
        assert first == {key: each[key] for key in ("token", "logprob", "bytes")}, "the fake engine takes the likeliest"
        assert (first["logprob"], second["logprob"]) == pytest.approx((HALF, 2 * HALF))


def test_without_alternatives_there_are_none(http: HttpClient) -> None:
    [choice] = http.chat(max_tokens=2, ignore_eos=True, logprobs=True).json["choices"]
    assert [each["top_logprobs"] for each in choice["logprobs"]["content"]] == [[], []]
    assert http.chat(max_tokens=2).json["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("streaming", ["each_token", "coalesced"])
def test_a_streamed_chat_has_those_of_the_whole(http: HttpClient, streaming: str) -> None:
    body = {"messages": HELLO, "max_tokens": 9, "ignore_eos": True, "logprobs": True, "top_logprobs": 1}
    whole = http.post(CHAT, body).json["choices"][0]["logprobs"]["content"]
    events = http.post(CHAT, {**body, "stream": True}, x_fairlead_streaming=streaming).events
    pieces = [event["choices"][0]["logprobs"] for event in events]
    assert [each for piece in pieces if piece for each in piece["content"]] == whole


def test_a_completion_says_where_its_tokens_begin(http: HttpClient) -> None:
    body = {"prompt": "ab", "max_tokens": 6, "ignore_eos": True, "logprobs": 2}
    [choice] = http.post(TEXT, body).json["choices"]
    logprobs = choice["logprobs"]
    assert [choice["text"][offset] for offset in logprobs["text_offset"]] == logprobs["tokens"]
    assert logprobs["text_offset"][0] == 0
    assert logprobs["token_logprobs"] == pytest.approx([HALF] * 6)
    assert [next(iter(top)) for top in logprobs["top_logprobs"]] == logprobs["tokens"]
    events = http.post(TEXT, {**body, "stream": True}).events
    pieces = [event["choices"][0]["logprobs"] for event in events]
    for name, whole in logprobs.items():
        assert [each for piece in pieces if piece for each in piece[name]] == whole


@pytest.mark.parametrize("text", ["日本語 x", "a\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL} z", "plain", "é"])
def test_each_part_of_a_character_begins_where_the_character_does(http: HttpClient, text: str) -> None:
    """The tokens of the fake engine are bytes."""
    body = {"prompt": text, "max_tokens": 2, "echo": True, "logprobs": 0, "ignore_eos": True}
    [choice] = http.post(TEXT, body).json["choices"]
    expected = [index for index, character in enumerate(choice["text"]) for _ in character.encode()]
    assert choice["logprobs"]["text_offset"] == expected


def reported(logprobs: Logprobs, chunk: OutputChunk) -> Any:
    """What a caller is told of `chunk`."""
    return json.loads(msgspec.json.encode(logprobs.report(logprobs.compact(0, chunk))))


def test_a_part_of_a_character_keeps_its_bytes_and_minus_infinity_is_a_number() -> None:
    tokens = [
        entry(b"\xc3", -math.inf, (b"a", -0.5), (b"\xc3", -1.0)),
        entry(b"\xa9", -0.25, (b"a", -0.5), (b"a", -1.0)),
    ]
    chunk = OutputChunk(b"", "", tokens)
    first, second = reported(ChatLogprobs(), chunk)["content"]
    assert (first["token"], first["bytes"], first["logprob"]) == ("\N{REPLACEMENT CHARACTER}", [0xC3], LEAST)
    assert [each["bytes"] for each in first["top_logprobs"]] == [[97], [0xC3]]
    assert second["bytes"] == [0xA9]
    assert reported(TextLogprobs(), chunk)["top_logprobs"][1] == {"a": -0.5}, "of equal texts the likelier"


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"top_logprobs": 2}, "top_logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (CHAT, {"logprobs": 3}, "logprobs"),
        (TEXT, {"logprobs": 21}, "logprobs"),
        (TEXT, {"logprobs": True}, "logprobs"),
        (TEXT, {"logit_bias": {"word": 1}}, "logit_bias"),
        (TEXT, {"logit_bias": {"5": 101}}, "logit_bias[5]"),
        (CHAT, {"logit_bias": {"5000": 1}}, "logit_bias"),
    ],
)
def test_values_that_are_refused_by_name(http: HttpClient, path: str, fields: dict[str, object], param: str) -> None:
    answer = (http.chat if path == CHAT else http.complete)(**fields)
    assert answer.status == 400, answer.body
    assert param in answer.error["param"] or param in answer.error["message"]


@pytest.mark.parametrize("prompt", ["hello", list(b"hello"), [list(b"ab"), list(b"hello")]])
def test_an_echoed_prompt_has_its_own(http: HttpClient, prompt: Any) -> None:
    body = {"prompt": prompt, "max_tokens": 2, "ignore_eos": True, "logprobs": 2, "echo": True}
    choice = http.post(TEXT, body).json["choices"][-1]
    logprobs = choice["logprobs"]
    assert choice["text"].startswith("hello")
    assert len(choice["text"]) == 7
    assert logprobs["tokens"] == list(choice["text"])
    assert logprobs["text_offset"] == list(range(7))
    assert logprobs["token_logprobs"] == [None, *[pytest.approx(HALF)] * 6]
    assert logprobs["top_logprobs"][0] is None
    assert [next(iter(top)) for top in logprobs["top_logprobs"][1:]] == logprobs["tokens"][1:]
    events = [event["choices"][0] for event in http.post(TEXT, {**body, "stream": True}).events]
    pieces = [piece for piece in events if piece["index"] == choice["index"]]
    assert "".join(piece["text"] for piece in pieces) == choice["text"]
    for name, whole in logprobs.items():
        assert [each for piece in pieces if piece["logprobs"] for each in piece["logprobs"][name]] == whole


@pytest.mark.parametrize("stream", [False, True])
def test_no_tokens_are_asked_for_where_only_the_prompt_is_wanted(http: HttpClient, stream: bool) -> None:
    body = {"prompt": [list(b"ab"), list(b"hello")], "max_tokens": 0, "logprobs": 1, "echo": True, "stream": stream}
    answer = http.post(TEXT, body)
    events = answer.events if stream else [answer.json]
    texts = ["", ""]
    for choice in (choice for event in events for choice in event["choices"]):
        texts[choice["index"]] += choice["text"]
    assert texts == ["ab", "hello"]
    tokens = [
        each
        for event in events
        for choice in event["choices"]
        for each in (choice["logprobs"] or {"tokens": ""})["tokens"]
    ]
    assert sorted(tokens) == sorted("abhello")


def test_biases_are_let_in(http: HttpClient) -> None:
    assert http.chat(logit_bias={"65": -100, "66": 1.5}).status == 200
    assert http.complete(logit_bias={}).status == 200
