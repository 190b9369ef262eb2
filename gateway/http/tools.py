"""Tools of OpenAI's APIs: functions that the model may call."""

from collections.abc import Sequence
from typing import Any

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2

CHOICES = "must be 'auto', 'none', 'required', or the name of a function with the type 'function'"


class FunctionDefinition(msgspec.Struct):
    """A function, and its parameters as a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolDefinition(msgspec.Struct):
    """A tool of a chat; only functions are understood."""

    type: str
    function: FunctionDefinition | None = None


def tools_to_offer(tools: Sequence[ToolDefinition] | None, choice: Any) -> list[common_pb2.Tool]:
    """Return the tools that the prompt offers to the model: none if the caller chooses none.

    Raises InvalidRequest for tools of other kinds.
    """
    offered = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools or ())]
    return [] if choice == "none" else offered


def tool_choice(choice: Any, parallel: bool | None) -> common_pb2.ToolChoice:
    """Return which calls the model has to make, at most one unless they may be `parallel`; raise InvalidRequest."""
    single = parallel is False
    match choice:
        case None | "auto" | "none":
            return common_pb2.ToolChoice(single=single)
        case "required":
            return common_pb2.ToolChoice(required=True, single=single)
        case {"type": "function", "name": str(name)} | {"type": "function", "function": {"name": str(name)}} if name:
            return common_pb2.ToolChoice(name=name, single=single)
        case _:
            raise InvalidRequest(f"{CHOICES}, got {repr(choice)[:64]}", "tool_choice")


def as_tool(function: FunctionDefinition) -> common_pb2.Tool:
    """Return the function as the chat template is given it."""
    parameters = msgspec.json.encode(function.parameters).decode() if function.parameters else ""
    return common_pb2.Tool(
        name=function.name, description=function.description, parameters=parameters, strict=function.strict
    )


def _tool(tool: ToolDefinition, place: str) -> common_pb2.Tool:
    if tool.type != "function":
        raise InvalidRequest(f"only tools of type 'function' are supported, got {tool.type[:32]!r}", f"{place}.type")
    if tool.function is None:
        raise InvalidRequest("a tool of type 'function' needs it", f"{place}.function")
    return as_tool(tool.function)
