"""Completions of prompts of every form."""

import pytest

from tests.unit.gateway.http.http_client import HttpClient


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("hello", None),
        (["hello"], None),
        (["a", "bc"], None),
        ([5, 6, 7], 3),
        ([[5, 6, 7], [8]], 4),
        (["a", [5, 6]], None),
    ],
)
def test_every_form_of_a_prompt(http: HttpClient, prompt: object, tokens: int | None) -> None:
    completion = http.complete(prompt=prompt, ignore_eos=True).json
    count = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
    assert completion["object"] == "text_completion"
    assert completion["id"].startswith("cmpl-")
    assert [choice["index"] for choice in completion["choices"]] == list(range(count))
    assert [len(choice["text"]) for choice in completion["choices"]] == [4] * count
    assert completion["usage"]["completion_tokens"] == 4 * count
    assert tokens is None or completion["usage"]["prompt_tokens"] == tokens


def test_a_prompt_is_echoed(http: HttpClient) -> None:
    alone = http.complete(prompt=["ab", "cd"], seed=1, n=2).json["choices"]
    echoed = http.complete(prompt=["ab", "cd"], seed=1, n=2, echo=True).json["choices"]
    prompts = ["ab", "ab", "cd", "cd"]
    assert [choice["text"] for choice in echoed] == [
        p + choice["text"] for p, choice in zip(prompts, alone, strict=True)
    ]
    streamed = http.complete(prompt="ab", echo=True, stream=True)
    assert "".join(event["choices"][0]["text"] for event in streamed.events).startswith("ab")
    assert streamed.is_done


def test_a_streamed_completion(http: HttpClient) -> None:
    answer = http.complete(stream=True, max_tokens=6, ignore_eos=True, stream_options={"include_usage": True})
    *events, usage = answer.events
    assert {event["object"] for event in answer.events} == {"text_completion"}
    assert len("".join(event["choices"][0]["text"] for event in events)) == 6
    assert [event["choices"][0]["finish_reason"] for event in events][-1] == "length"
    assert usage["usage"]["completion_tokens"] == 6


def test_the_stop_string_that_was_met_is_told(http: HttpClient) -> None:
    asked = {"prompt": "ab", "max_tokens": 12, "seed": 1}
    [whole] = http.complete(**asked, ignore_eos=True).json["choices"]
    stop = whole["text"][6:8]
    [cut] = http.complete(**asked, stop=["never this", stop]).json["choices"]
    assert (whole["finish_reason"], whole["stop_reason"]) == ("length", None)
    assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", stop)
    *earlier, last = [event["choices"][0] for event in http.complete(**asked, stop=stop, stream=True).events]
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", stop)
    assert not any("stop_reason" in choice for choice in earlier)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["x"] * 129}, "prompt"),
        ({"prompt": ["x"] * 65, "n": 2}, "prompt"),
        ({"prompt": [1, -1]}, "prompt[1]"),
        ({"prompt": [10**9]}, "prompt"),
        ({"prompt": [1, 2], "echo": True}, "echo"),
        ({"prompt": {"a": "b"}}, "prompt"),
    ],
)
def test_prompts_that_are_none(http: HttpClient, fields: dict[str, object], param: str) -> None:
    answer = http.complete(**fields)
    assert answer.status == 400, answer.body
    assert answer.error["param"] == param
