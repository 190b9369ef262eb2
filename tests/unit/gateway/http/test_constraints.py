"""Constraints of outputs, by every name that the APIs have for them."""

import json
import re
from typing import Any

import pytest

from tests.unit.gateway.http.http_client import MESSAGES, RESPONSES, HttpClient
from tests.unit.local_worker.engine.schema_validator import is_valid
from tests.unit.local_worker.engine.test_json_schemas import REFUSED, Schema

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[a-z]{2,5}$"}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TEXT = {"type": "string", "pattern": '^[^"a-z]{2}$'}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}


def is_person(text: str) -> bool:
    person = json.loads(text)
    return bool(re.fullmatch("[a-z]{2,5}", person["name"])) and type(person["age"]) is int and len(person) == 2


def told(http: HttpClient, **fields: object) -> str:
    """The text of a chat, whole and streamed, which has come to an end of its own."""
    asked = {"max_tokens": 400, "seed": 1, **fields}
    whole, stream = http.chat(**asked), http.chat(stream=True, **asked)
    assert whole.status == 200, whole.body
    [choice] = whole.json["choices"]
    text: str = choice["message"]["content"]
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in stream.events) == text
    assert choice["finish_reason"] == "stop"
    return text


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": FORMAT},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA)}},
        {"guided_json": SCHEMA},
    ],
)
def test_json_is_valid_under_the_schema(http: HttpClient, fields: dict[str, Any]) -> None:
    assert is_person(told(http, **fields))


STEP = {"type": "object", "properties": {"uses": TEXT, "run": TEXT}, "additionalProperties": False}
KINDS: dict[str, Schema] = {
    "one of two properties": {**STEP, "oneOf": [{"required": ["uses"]}, {"required": ["run"]}]},
    "not both properties": {**STEP, "not": {"required": ["uses", "run"]}},
    "a property that needs another": {**STEP, "dependentRequired": {"run": ["uses"]}},
    "a condition": {**STEP, "if": {"required": ["uses"]}, "then": {"properties": {"run": False}}},
    "generated names": {"$ref": "#/$defs/List<string>", "$defs": {"List<string>": {"type": "array", "maxItems": 2}}},
}


@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
def test_schemas_of_configuration_files_are_obeyed(http: HttpClient, schema: Schema) -> None:
    text = told(http, response_format={"type": "json_schema", "json_schema": {"name": "step", "schema": schema}})
    assert is_valid(schema, json.loads(text)), text


@pytest.mark.parametrize("is_old", [False, True])
def test_a_regular_expression_a_choice_and_a_grammar_are_obeyed(http: HttpClient, is_old: bool) -> None:
    def vllm(name: str, value: object) -> dict[str, object]:
        return {f"guided_{name}": value} if is_old else {"structured_outputs": {name: value}}

    assert re.fullmatch("[0-9]{4}-[a-f]{2}", told(http, **vllm("regex", "[0-9]{4}-[a-f]{2}")))
    assert told(http, **vllm("choice", ["yes", "no"])) in ("yes", "no")
    assert re.fullmatch("<[ab]{3}>", told(http, **vllm("grammar", 'start: "<" /[ab]{3}/ ">"')))


def test_any_json_object_will_do(http: HttpClient) -> None:
    for fields in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}):
        [choice] = http.chat(max_tokens=20, **fields).json["choices"]
        assert choice["message"]["content"].startswith("{")


def test_a_format_of_any_text_is_no_constraint(http: HttpClient) -> None:
    free = http.chat(seed=1, ignore_eos=True).json["choices"]
    nothing: tuple[dict[str, Any], ...] = (
        {"response_format": {"type": "text"}},
        {"response_format": None},
        {"structured_outputs": {}},
    )
    for fields in nothing:
        assert http.chat(seed=1, ignore_eos=True, **fields).json["choices"] == free


def test_completions_are_constrained_too(http: HttpClient) -> None:
    answer = http.complete(response_format=FORMAT, max_tokens=400, n=2)
    assert answer.status == 200, answer.body
    assert all(is_person(choice["text"]) for choice in answer.json["choices"])


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_has_its_format_and_obeys_it(http: HttpClient, stream: bool) -> None:
    form = {"type": "json_schema", "name": "person", "schema": SCHEMA}
    answer = http.post(RESPONSES, {"input": "hello", "text": {"format": form, "verbosity": "medium"}, "stream": stream})
    response = answer.named_events[-1]["response"] if stream else answer.json
    assert is_person(response["output"][0]["content"][0]["text"])
    assert response["text"]["format"] == form | {"description": None, "strict": None}
    loose = http.post(
        RESPONSES, {"input": "hello", "text": {"format": {"type": "json_object"}}, "max_output_tokens": 9}
    )
    assert loose.json["output"][0]["content"][0]["text"].startswith("{")


def formed(schema: object) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}


def test_fields_of_vllm_beside_a_constraint_are_let_through_where_they_change_nothing(http: HttpClient) -> None:
    """As a program has it that sends all fields of vLLM's own class."""
    unset = dict.fromkeys(("regex", "choice", "grammar", "json_object", "structural_tag", "whitespace_pattern"))
    hints = {"disable_fallback": True, "disable_any_whitespace": True, "disable_additional_properties": False}
    answer = http.chat(structured_outputs={"json": {"type": "object"}, **unset, **hints})
    assert answer.status == 200, answer.body
    assert answer.headers["x-fairlead-ignored"] == "structured_outputs.disable_any_whitespace"


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "xml"),
        (formed({"type": "thing"}), "response_format", "Invalid type: thing"),
        (formed({}) | {"guided_regex": "a"}, "guided_regex", "not together with response_format"),
        ({"structured_outputs": {"json": "{", "regex": "a"}}, "structured_outputs.regex", "structured_outputs.json"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "unclosed group"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag", "null"),
        (
            {"structured_outputs": {"disable_additional_properties": True}},
            "structured_outputs.disable_additional_properties",
            "got true",
        ),
        ({"structured_outputs": {"jsno": {}}}, "structured_outputs", "jsno"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "got 0"),
        (formed({}) | {"ignore_eos": True}, "response_format", "ignore_eos"),
        ({"guided_json": "x" * 70_000}, "guided_json", "at most 65536 bytes"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_constraints_that_cannot_be_obeyed_are_refused_by_name_and_reason(
    http: HttpClient, fields: dict[str, Any], param: str, words: str, stream: bool
) -> None:
    answer = http.chat(stream=stream, **fields)
    assert answer.status == 400
    assert answer.error["param"] == param
    assert words in answer.error["message"]


@pytest.mark.parametrize(("schema", "reason"), REFUSED, ids=lambda value: json.dumps(value)[:50])
def test_a_schema_that_cannot_be_compiled_is_refused_with_the_reason(
    http: HttpClient, schema: Schema, reason: str
) -> None:
    chat = http.chat(**formed(schema))
    assert (chat.status, chat.error["param"]) == (400, "response_format")
    assert reason in chat.error["message"]
    form = {"type": "json_schema", "name": "none", "schema": schema}
    response = http.post(RESPONSES, {"input": "hello", "text": {"format": form}})
    assert (response.status, response.error["param"]) == (400, "text.format")
    assert reason in response.error["message"]
    asked = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
    message = http.post(MESSAGES, asked | {"output_config": {"format": {"type": "json_schema", "schema": schema}}})
    assert message.status == 400
    assert message.json["error"]["message"].startswith("output_config.format: ")
    assert reason in message.json["error"]["message"]


def test_a_response_names_its_own_parameter(http: HttpClient) -> None:
    form = {"type": "json_schema", "name": "none", "schema": False}
    answer = http.post(RESPONSES, {"input": "hello", "text": {"format": form}})
    assert (answer.status, answer.error["param"]) == (400, "text.format")
    assert "got False" in answer.error["message"]
