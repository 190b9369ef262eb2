"""What has not the form of a field: the error names the field, what it may be, and what it is."""

import json
import re

import pytest

from fairlead.errors import InvalidRequest
from gateway.http.chat_completions import chat_completions
from gateway.http.completions import completions
from gateway.http.decoding import MOST_FLOATS
from gateway.http.messages import messages
from gateway.http.mismatch import MOST_VALUE
from gateway.http.responses_request import read

CHAT = {"messages": [{"role": "user", "content": "x"}]}
FORMATS = '"text", "json_object", "json_schema"'
DIGITS = b"9" * 5000  # more than Python reads


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"n": 0}, "n", "Expected `int` >= 1, got 0"),
        ({"top_logprobs": 21}, "top_logprobs", "Expected `int` <= 20, got 21"),
        ({"max_tokens": -1}, "max_tokens", "Expected `int` >= 0, got -1"),
        ({"max_tokens": "5"}, "max_tokens", 'Expected `int | null`, got "5"'),
        ({"seed": 1.5}, "seed", "Expected `int | null`, got 1.5"),
        ({"stop": ["a", 5]}, "stop[1]", "Expected `str`, got 5"),
        ({"logit_bias": {"5": "x"}}, "logit_bias", 'Expected `float`, got {"5":"x"}'),
        ({"logit_bias": {"a": 1}}, "logit_bias", 'Expected `int`, got {"a":1}'),
        ({"response_format": {"type": "xml"}}, "response_format.type", f'must be one of {FORMATS}, got "xml"'),
        ({"tools": [{"function": {}}]}, "tools[0].function.name", "Object missing required field `name`"),
        (
            {"user": "y" * 9000, "stream": "x" * 9000},
            "stream",
            f'Expected `bool | null`, got "{"x" * (MOST_VALUE - 1)}...',
        ),
    ],
)
def test_an_error_names_the_field_the_limit_and_the_value(fields: object, field: str, message: str) -> None:
    body = json.dumps({**CHAT, **dict(fields)}).encode()  # type: ignore[call-overload]
    with pytest.raises(InvalidRequest) as refused:
        chat_completions(body)
    assert (refused.value.field, refused.value.message) == (field, f"{field}: {message}")


@pytest.mark.parametrize(
    ("fields", "field", "values"),
    [
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", '"assistant", "system", "user"'),
        ({"tool_choice": {"type": "one"}}, "tool_choice.type", '"any", "auto", "none", "tool"'),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type", '"json_schema"'),
    ],
)
def test_an_error_names_the_values_that_are_right(fields: object, field: str, values: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        messages(json.dumps({**CHAT, "max_tokens": 1, **dict(fields)}).encode())  # type: ignore[call-overload]
    assert refused.value.field == field
    assert f"must be one of {values}, got " in refused.value.message


@pytest.mark.parametrize("further", [b"]", b"\xff}", b',"seed":' + DIGITS + b"}", b',"x":"\\ud800"}'])
def test_a_mismatch_before_what_cannot_be_read_is_named(further: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat_completions(b'{"n":0' + further)
    assert refused.value.field == "n"


@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"'])
def test_a_body_that_is_no_object_is_named(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match=f"^the body: Expected `object`, got {re.escape(body.decode())}$"):
        chat_completions(body)


def test_a_body_without_a_required_field_names_it() -> None:
    for read_body, field in ((chat_completions, "messages"), (completions, "prompt"), (read, "input")):
        with pytest.raises(InvalidRequest) as refused:
            read_body(b"{}")
        assert refused.value.field == field


def test_a_refused_body_of_many_floats_is_read_without_looking_for_whole_numbers() -> None:
    """It would take ten times as long."""
    for floats, is_read in ((MOST_FLOATS - 1, True), (MOST_FLOATS, False)):
        body = json.dumps({**CHAT, "n": 1.0, "metadata": [0.5] * floats}).encode()
        if is_read:
            assert chat_completions(body).n == 1
        else:
            with pytest.raises(InvalidRequest, match=r"^n: .*, got 1\.0$"):
                chat_completions(body)


def test_a_whole_number_may_be_written_as_a_float() -> None:
    """Languages whose numbers are all floats write 1.0, and it is the same number in JSON."""
    chat = chat_completions(
        json.dumps({**CHAT, "n": 2.0, "top_k": 40.0, "seed": -1.0, "logit_bias": {"5": 1}}).encode()
    )
    assert (chat.n, chat.top_k, chat.seed, chat.logit_bias) == (2, 40, -1, {5: 1})
    assert completions(b'{"prompt": [[1.0, 2.0]], "max_tokens": 3.0}').prompt == [[1, 2]]
    assert messages(json.dumps({**CHAT, "max_tokens": 5e2}).encode()).max_tokens == 500
