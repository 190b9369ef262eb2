"""Chat completions, whole and streamed, by the letter of the API."""

from collections.abc import Sequence

import pytest

from tests.services import Process
from tests.unit.gateway.http.http_client import CHAT, HELLO, TEXT, HttpClient


def test_a_whole_answer(http: HttpClient) -> None:
    answer = http.chat(model="tiny", max_tokens=5, ignore_eos=True)
    assert answer.status == 200
    completion = answer.json
    assert completion["object"] == "chat.completion"
    assert completion["id"] == f"chatcmpl-{answer.headers['x-request-id']}"
    assert completion["model"] == "tiny"
    [choice] = completion["choices"]
    assert choice["index"] == 0
    assert choice["finish_reason"] == "length"
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"]) == 5, "the fake engine's tokens are one character each"
    usage = completion["usage"]
    assert usage["completion_tokens"] == 5
    assert usage["total_tokens"] == usage["prompt_tokens"] + 5
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 0


def test_a_stream_by_the_letter(http: HttpClient) -> None:
    answer = http.chat(stream=True, max_tokens=9, ignore_eos=True, seed=7)
    assert answer.is_done
    events = answer.events
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1
    choices = [event["choices"][0] for event in events]
    assert [choice["delta"].get("role") for choice in choices] == ["assistant"] + [None] * (len(choices) - 1)
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert choices[-1]["delta"]["content"], "the reason comes with the last token, which clients count"
    assert "usage" not in events[0]
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    whole = http.chat(max_tokens=9, ignore_eos=True, seed=7).json["choices"][0]["message"]["content"]
    assert text == whole


def test_usage_is_the_last_event_where_it_is_asked_for(http: HttpClient) -> None:
    *events, last = http.chat(stream=True, stream_options={"include_usage": True}, ignore_eos=True).events
    assert all(event["usage"] is None and event["choices"] for event in events)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 4
    assert last["object"] == "chat.completion.chunk"


def test_each_token_in_an_event_of_its_own(http: HttpClient) -> None:
    body = {"messages": HELLO, "max_tokens": 12, "stream": True, "ignore_eos": True}
    chunks = [event["choices"][0] for event in http.post(CHAT, body, x_fairlead_streaming="each_token").events]
    assert [len(chunk["delta"]["content"]) for chunk in chunks] == [1] * 12
    assert [chunk["finish_reason"] for chunk in chunks] == [None] * 11 + ["length"]
    assert len(http.post(CHAT, body).events) < 13


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_each_event_has_the_usage_so_far_where_it_is_asked_for(http: HttpClient, path: str) -> None:
    asked = {"messages": HELLO} if path == CHAT else {"prompt": ["hi", "hello there"]}
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {**asked, "max_tokens": 5, "stream": True, "ignore_eos": True, "n": 2}
    *events, last = http.post(path, {**body, "stream_options": options}).events
    prompts = {event["choices"][0]["index"]: event["usage"]["prompt_tokens"] for event in events}
    assert len(set(prompts.values())) == (1 if path == CHAT else 2)
    for index, prompt in prompts.items():
        own = [event["usage"] for event in events if event["choices"][0]["index"] == index]
        assert own == [
            {"prompt_tokens": prompt, "completion_tokens": n, "total_tokens": prompt + n} for n in range(1, 6)
        ]
    assert last["usage"]["completion_tokens"] == 5 * len(prompts)
    alone = http.post(path, {**body, "stream_options": {"continuous_usage_stats": True}}).events
    assert all("usage" not in event for event in alone), "as in vLLM it belongs to include_usage"


@pytest.mark.parametrize("stream", [False, True])
def test_several_choices_are_calls_of_their_own(shared: tuple[Process, HttpClient], stream: bool) -> None:
    gateway, http = shared
    answer = http.chat(n=3, seed=5, stream=stream, stream_options={"include_usage": True}, ignore_eos=True)
    if stream:
        texts = ["", "", ""]
        for event in answer.events:
            for choice in event["choices"]:
                texts[choice["index"]] += choice["delta"].get("content", "")
        usage = answer.events[-1]["usage"]
    else:
        texts = [choice["message"]["content"] for choice in answer.json["choices"]]
        usage = answer.json["usage"]
    assert [len(text) for text in texts] == [4, 4, 4]
    single = http.chat(seed=5, ignore_eos=True).json
    assert texts[0] == single["choices"][0]["message"]["content"], "the first is drawn with the seed that was given"
    assert usage["completion_tokens"] == 12
    assert usage["prompt_tokens"] == single["usage"]["prompt_tokens"], "one prompt is counted once"
    named = answer.headers["x-request-id"]
    assert len([line for line in gateway.logged("call ended") if line["caller_request_id"] == named]) == 2


def test_parts_of_text_null_content_and_developers(http: HttpClient) -> None:
    def tokens(messages: Sequence[object]) -> int:
        prompt_tokens: int = http.chat(messages=messages).json["usage"]["prompt_tokens"]
        return prompt_tokens

    parts = [{"type": "text", "text": "he"}, {"type": "text", "text": "llo"}]
    assert tokens([{"role": "user", "content": parts}]) == tokens([{"role": "user", "content": "he\nllo"}])
    system, developer = ({"role": role, "content": "Be brief."} for role in ("system", "developer"))
    assert tokens([developer, *HELLO]) == tokens([system, *HELLO])
    assert tokens([{"role": "assistant", "content": None}, *HELLO]) > tokens(HELLO)


def test_without_max_tokens_the_rest_of_the_context_is_allowed(http: HttpClient) -> None:
    full = http.post(CHAT, {"messages": HELLO, "ignore_eos": True}).json
    assert full["usage"]["total_tokens"] == 2048
    assert full["choices"][0]["finish_reason"] == "length"


def test_both_names_of_the_bound_and_unknown_fields(http: HttpClient) -> None:
    answer = http.chat(
        max_completion_tokens=2, ignore_eos=True, store=False, service_tier="auto", never_heard_of={"a": 1}
    )
    assert answer.json["usage"]["completion_tokens"] == 2
