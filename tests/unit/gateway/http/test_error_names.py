"""Errors that are found after the body was read name the parameter that the body has, at its place there."""

from typing import Any

import pytest

from tests.unit.gateway.http.http_client import CHAT, HELLO, MESSAGES, RESPONSES, HttpClient

BAD = {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}
LONG, LONGER = "n" * 129, "n" * 1025
CALL = {"id": "c", "type": "function", "function": {"name": LONGER, "arguments": "{}"}}
SAID = [*HELLO, {"role": "assistant", "tool_calls": [CALL]}]
USED = [*HELLO, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": LONGER, "input": {}}]}]
ITEMS = [*HELLO, {"type": "function_call", "call_id": "c", "name": LONGER, "arguments": "{}"}]
SEARCH = {"type": "web_search"}


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, "/tokenize"])
def test_an_error_of_the_header_that_names_the_user_names_the_header(http: HttpClient, path: str) -> None:
    answer = http.post(path, {}, x_fairlead_user="x" * 129)
    assert answer.status == 400
    assert answer.json["error"]["message"] == "x-fairlead-user: must be at most 128 characters, got 129"


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("header", ["authorization", "X-Api-Key", "X-Fairlead-User"])
def test_who_calls_is_said_once(http: HttpClient, path: str, header: str) -> None:
    """A proxy before the gateway may have checked the value that does not count here; the same value twice is one."""
    body = b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}'
    length = b"content-length: %d\r\n" % len(body)
    head = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" % path.encode() + length
    for values, status in (((b"Bearer a", b"Bearer b"), b"400"), ((b"Bearer a", b"Bearer a"), b"200")):
        fields = b"".join(b"%b: %b\r\n" % (header.encode(), value) for value in values)
        with http.connect() as connection:
            connection.sendall(head + fields + b"connection: close\r\n\r\n" + body)
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 " + status), answer
        if status == b"400":
            assert b'"%b: must have one value, got several"' % header.lower().encode() in answer


@pytest.mark.parametrize(
    ("path", "fields", "parameter"),
    [
        (CHAT, {"guided_json": BAD}, "guided_json"),
        (CHAT, {"guided_regex": "("}, "guided_regex"),
        (CHAT, {"guided_grammar": "("}, "guided_grammar"),
        (CHAT, {"guided_choice": []}, "guided_choice"),
        (CHAT, {"structured_outputs": {"json": BAD}}, "structured_outputs.json"),
        (CHAT, {"structured_outputs": {"json_object": True}, "ignore_eos": True}, "structured_outputs.json_object"),
        (CHAT, {"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"schema": BAD}}}, "response_format"),
        (CHAT, {"max_completion_tokens": 0}, "max_completion_tokens"),
        (CHAT, {"safety_identifier": "x" * 129}, "safety_identifier"),
        (CHAT, {"metadata": {"user_id": "x" * 129}}, "metadata.user_id"),
        (CHAT, {"tools": [SEARCH, {"type": "function", "function": {"name": LONG}}]}, "tools[1].function.name"),
        (CHAT, {"tools": [SEARCH, {"type": "custom", "custom": {"name": LONG}}]}, "tools[1].custom.name"),
        (CHAT, {"messages": SAID}, "messages[1].tool_calls[0].function.name"),
        (RESPONSES, {"tools": [SEARCH, {"type": "function", "name": LONG}]}, "tools[1].name"),
        (
            RESPONSES,
            {"tools": [{"type": "namespace", "name": "a", "tools": [SEARCH, {"type": "custom", "name": LONG}]}]},
            "tools[0].tools[1].name",
        ),
        (RESPONSES, {"instructions": "x", "input": ITEMS}, "input[1].name"),
        (MESSAGES, {"output_format": {"type": "json_schema", "schema": BAD}}, "output_format"),
        (MESSAGES, {"output_config": {"format": {"type": "json_schema", "schema": BAD}}}, "output_config.format"),
        (MESSAGES, {"system": "x", "messages": USED}, "messages[1].content[0].name"),
        (MESSAGES, {"tools": [{"type": "bash_20250124", "name": "b"}, {"name": LONG}]}, "tools[1].name"),
    ],
)
def test_a_late_error_names_the_parameter_of_the_body(
    http: HttpClient, path: str, fields: dict[str, Any], parameter: str
) -> None:
    asked = {"input": "x"} if path == RESPONSES else {"messages": HELLO, "max_tokens": 2}
    answer = http.post(path, {**asked, **fields})
    assert answer.status == 400, answer.body
    error = answer.json["error"]
    assert error["message"].startswith(f"{parameter}: ")
    assert error.get("param", parameter) == parameter
