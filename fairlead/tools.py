"""Functions that a model may call, and the calls that it makes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call; `parameters` are a JSON schema, by default that of no parameters.

    If it is `strict`, the arguments of each call are valid under the schema; by default those of required calls are. A
    schema that the worker cannot compile is then refused.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model makes.

    `arguments` are as the model wrote them: a JSON object, unless the model errs or its output ends within them. The
    result goes into a message of role `tool` whose `tool_call_id` is `id`.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallPiece:
    """The next part of the call `number` of an output: its name in the first piece, then text of its arguments."""

    number: int
    name: str
    arguments: str
