"""What `vllm bench serve` sends and reads, written out: vLLM itself is too large to install for a test."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.gateway.http.http_client import CHAT, DETOKENIZE, MODELS, SECONDS, TEXT, TOKENIZE, HttpClient

OUTPUT = 16
PROMPT = "the tide " * 5
ASKED = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
# Of `--header x-fairlead-streaming=each_token`, without which several tokens share an event.
HEADERS = {"content-type": "application/json", "x-request-id": "bench-0", "x-fairlead-streaming": "each_token"}


def events(client: HttpClient, path: str, body: dict[str, Any]) -> Iterator[Any]:
    """What it takes from a stream: it reads lines that begin with a colon as pings, and ends at `[DONE]`."""
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=SECONDS)
    try:
        connection.request("POST", path, json.dumps(body), HEADERS)
        answer = connection.getresponse()
        assert answer.status == 200
        for line in answer:
            if line.strip() and not line.startswith(b":"):
                data = line.removeprefix(b"data: ").strip()
                if data == b"[DONE]":
                    return
                yield json.loads(data)
        raise AssertionError("the stream has no end")
    finally:
        connection.close()


def test_it_finds_the_model_and_aligns_prompts(http: HttpClient) -> None:
    assert [(model["id"], model["root"]) for model in http.get(MODELS).json["data"]] == [("tiny", "tiny")]
    tokens = http.post(TOKENIZE, {"model": "tiny", "prompt": PROMPT, "add_special_tokens": False}).json["tokens"]
    assert http.post(DETOKENIZE, {"model": "tiny", "tokens": tokens[:8]}).json["prompt"] == PROMPT[:8]
    assert http.get("/metrics").status == 404, "it goes on without the metrics of vLLM"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (TEXT, {"prompt": PROMPT, "repetition_penalty": 1.0, "max_tokens": OUTPUT, "logprobs": None}),
        (
            CHAT,
            {
                "messages": [{"role": "user", "content": [{"type": "text", "text": PROMPT}]}],
                "max_completion_tokens": OUTPUT,
            },
        ),
    ],
    ids=["openai", "openai-chat"],
)
def test_it_counts_tokens_by_events(http: HttpClient, path: str, fields: dict[str, Any]) -> None:
    """Between two events with choices it counts a token's time, so that the last of them has a token, too."""
    received = list(events(http, path, {"model": "tiny", **fields, **ASKED}))
    spoken = [event["choices"][0] for event in received if event["choices"]]
    texts = [choice["text"] if path == TEXT else choice["delta"].get("content") for choice in spoken]
    assert [len(text) for text in texts] == [1] * OUTPUT
    assert [choice["finish_reason"] for choice in spoken] == [None] * (OUTPUT - 1) + ["length"]
    (usage,) = [event["usage"] for event in received if not event["choices"]]
    assert usage["completion_tokens"] == OUTPUT
    assert usage["prompt_tokens"] >= len(PROMPT)
