"""The formats of an output's text that OpenAI's APIs have, and the constraint to a schema."""

from typing import Any

import msgspec

from fairlead.v1 import common_pb2
from gateway.http.common_fields import Level

Schema = dict[str, Any] | bool


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


def of_schema(schema: str | Schema) -> common_pb2.SamplingParams:
    """Return the constraint to JSON that is valid under `schema`, parsed or as text."""
    text = schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
    return common_pb2.SamplingParams(json_schema=text)
