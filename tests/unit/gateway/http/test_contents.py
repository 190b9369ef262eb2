"""What programs send as contents, calls and choices that no document of an API has, and what is meant is clear."""

import json
from typing import Any

import pytest

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.http.chat_completions import chat_completions
from tests.unit.gateway.http.http_client import CHAT, RESPONSES, HttpClient

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f"}}


def chat(*messages: dict[str, Any], **fields: Any) -> common_pb2.Chat:
    body = json.dumps({"messages": [{"role": "user", "content": "x"}, *messages], **fields}).encode()
    return chat_completions(body).generations()[0].prompt.chat


@pytest.mark.parametrize("content", [["a", "b"], [{"text": "a"}, {"text": "b"}], ["a", {"type": "text", "text": "b"}]])
def test_a_part_may_be_a_text_and_needs_no_type(content: object) -> None:
    """vLLM reads these, too."""
    assert chat({"role": "user", "content": content}).messages[1].content == "a\nb"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"a": 1}, '{"a":1}'),
        (5, "5"),
        (True, "true"),
        (["a", "b"], '["a","b"]'),
        ([{"a": 1}], '[{"a":1}]'),
        ([None], "[null]"),
    ],
)
def test_the_result_of_a_tool_may_be_anything(content: object, text: str) -> None:
    """A program cannot take back what its tool has answered."""
    result = {"role": "tool", "tool_call_id": "c", "content": content}
    assert chat({"role": "assistant", "tool_calls": [CALL]}, result).messages[2].content == text


@pytest.mark.parametrize(
    ("content", "field"),
    [(5, "content"), ({"a": 1}, "content"), ([5], "content[0]"), ([{"text": 5}], "content[0].text")],
)
def test_another_content_is_refused_by_name(content: object, field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^messages\\[1\\].{field}: ".replace("[0]", r"\[0\]")) as refused:
        chat({"role": "user", "content": content})
    assert refused.value.field == f"messages[1].{field}"


@pytest.mark.parametrize("kind", ["", None, "functionfunction", "function"])
def test_an_earlier_call_may_have_lost_its_type(kind: str | None) -> None:
    message = chat({"role": "assistant", "tool_calls": [{**CALL, "type": kind}]}).messages[1]
    assert message.tool_calls[0].name == "f"


@pytest.mark.parametrize(("mode", "tools", "required"), [("auto", 1, False), ("none", 0, False), ("any", 1, True)])
def test_a_choice_may_be_an_object_with_its_mode(mode: str, tools: int, required: bool) -> None:
    asked = chat(tools=[TOOL], tool_choice={"type": mode})
    assert (len(asked.tools), asked.tool_choice.required) == (tools, required)


def test_a_choice_of_a_response_may_be_an_object_with_its_mode(http: HttpClient) -> None:
    tool = {"type": "function", "name": "f"}
    body = {"input": "x", "max_output_tokens": 1, "tools": [tool], "tool_choice": {"type": "auto"}}
    assert http.post(RESPONSES, body).status == 200


def test_a_wrong_method_is_told_the_right_ones(http: HttpClient) -> None:
    assert http.request("GET", CHAT, b"", {}).headers["allow"] == "POST"
    assert http.request("PUT", f"{RESPONSES}/x", b"", {}).headers["allow"] == "GET, DELETE"
