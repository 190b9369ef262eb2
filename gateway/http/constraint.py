"""Constraints of outputs, by the names that OpenAI's APIs and vLLM have for them."""

from collections.abc import Iterator
from typing import Any

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.http.openai_request import OpenAIRequest
from gateway.http.wishes import Level
from serving.constraint import check_choices

Schema = dict[str, Any] | bool
Given = tuple[str, common_pb2.SamplingParams]  # a parameter's name, and the constraint for which it asks


class TextFormat(msgspec.Struct, tag="text", tag_field="type"):
    """Ask for any text."""


class JsonObjectFormat(msgspec.Struct, tag="json_object", tag_field="type"):
    """Ask for any JSON object."""


class SchemaFormat(msgspec.Struct, tag="json_schema", tag_field="type"):
    """Ask for JSON that is valid under a schema, as Responses do. It is obeyed whether or not it is `strict`."""

    name: str
    schema: Schema
    description: str | None = None
    strict: bool | None = None


class NamedSchema(msgspec.Struct):
    """The named schema of a chat's output; without `schema`, any JSON is valid."""

    schema: Schema | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class ChatSchemaFormat(msgspec.Struct, tag="json_schema", tag_field="type"):
    """Ask for JSON that is valid under a schema, as chats do."""

    json_schema: NamedSchema


class TextOptions(msgspec.Struct):
    """The options for the text of a response: its format and its length."""

    format: TextFormat | JsonObjectFormat | SchemaFormat | None = None
    verbosity: Level | None = None


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True):
    """The constraints of an output as vLLM names them; at most one of them may be given."""

    json: str | Schema | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class ConstrainedRequest(OpenAIRequest, kw_only=True):
    """A request with the fields that constrain an output of chats and completions; at most one of them may be given."""

    response_format: TextFormat | JsonObjectFormat | ChatSchemaFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | Schema | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

    @property
    def format(self) -> TextFormat | JsonObjectFormat | ChatSchemaFormat | None:
        """The format of the output's text, if it has one."""
        return self.response_format

    def constrain(self, sampling: common_pb2.SamplingParams) -> None:
        """Add the constraint to `sampling`; raises InvalidRequest if several are given."""
        given = [*self._given()]
        if len(given) > 1:
            raise InvalidRequest(f"not together with {given[0][0]}: an output has one constraint", given[1][0])
        for _, constraint in given:
            sampling.MergeFrom(constraint)

    def _given(self) -> Iterator[Given]:
        match self.format:
            case JsonObjectFormat():
                yield "response_format", common_pb2.SamplingParams(json_object=True)
            case ChatSchemaFormat(json_schema):
                yield "response_format", of_schema(True if json_schema.schema is None else json_schema.schema)
        if self.structured_outputs is not None:
            yield from _of_vllm("structured_outputs.", self.structured_outputs)
        guided = StructuredOutputs(self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar)
        yield from _of_vllm("guided_", guided)


def _of_vllm(prefix: str, asked: StructuredOutputs) -> Iterator[Given]:
    if asked.json is not None:
        yield f"{prefix}json", of_schema(asked.json)
    if asked.regex is not None:
        yield f"{prefix}regex", common_pb2.SamplingParams(regex=asked.regex)
    if asked.choice is not None:
        check_choices(len(asked.choice))
        yield f"{prefix}choice", common_pb2.SamplingParams(choice=common_pb2.Choices(texts=asked.choice))
    if asked.grammar is not None:
        yield f"{prefix}grammar", common_pb2.SamplingParams(grammar=asked.grammar)
    if asked.json_object:
        yield f"{prefix}json_object", common_pb2.SamplingParams(json_object=True)


def of_schema(schema: str | Schema) -> common_pb2.SamplingParams:
    """Return the constraint to JSON that is valid under `schema`, parsed or as text."""
    text = schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
    return common_pb2.SamplingParams(json_schema=text)
