"""Log-probabilities with the words of their tokens, and biases, in chat completions and completions."""

import math

import pytest

from fairlead.v1 import common_pb2
from gateway.http.logprobs import LEAST, TextLogprobs, of_chat
from tests.gateway.http.http_client import CHAT, HELLO, TEXT, HttpClient

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


def test_a_part_of_a_character_keeps_its_bytes_and_minus_infinity_is_a_number() -> None:
    tokens = [
        entry(b"\xc3", -math.inf, (b"a", -0.5), (b"\xc3", -1.0)),
        entry(b"\xa9", -0.25, (b"a", -0.5), (b"a", -1.0)),
    ]
    first, second = of_chat(0, tokens)["content"]
    assert (first["token"], first["bytes"], first["logprob"]) == ("\N{REPLACEMENT CHARACTER}", [0xC3], LEAST)
    assert [each["bytes"] for each in first["top_logprobs"]] == [[97], [0xC3]]
    assert second["bytes"] == [0xA9]
    assert TextLogprobs(())(0, tokens)["top_logprobs"][1] == {"a": -0.5}, "of equal texts the likelier"


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"top_logprobs": 2}, "top_logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (CHAT, {"logprobs": 3}, "logprobs"),
        (TEXT, {"logprobs": 21}, "logprobs"),
        (TEXT, {"logprobs": 1, "echo": True}, "logprobs"),
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


def test_biases_are_let_in(http: HttpClient) -> None:
    assert http.chat(logit_bias={"65": -100, "66": 1.5}).status == 200
    assert http.complete(logit_bias={}).status == 200
