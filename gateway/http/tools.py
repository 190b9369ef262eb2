"""Tools of OpenAI's APIs: functions that the model may call."""

from collections.abc import Sequence
from typing import Any

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2

WHY = "cannot be promised, because the model decides what it calls; supported are 'auto' and 'none'"


class FunctionDefinition(msgspec.Struct):
    """A function, and its parameters as a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolDefinition(msgspec.Struct):
    """A tool of a chat; only functions are understood."""

    type: str
    function: FunctionDefinition | None = None


def tools_to_offer(tools: Sequence[ToolDefinition] | None, choice: Any) -> list[common_pb2.Tool]:
    """Return the tools that the model is told of: none if the caller chooses none.

    Raises InvalidRequest for tools of other kinds, and for a choice that cannot be promised.
    """
    offered = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools or ())]
    check_choice(choice)
    return [] if choice == "none" else offered


def check_choice(choice: Any) -> None:
    """Raise InvalidRequest for a choice of tools that is neither left to the model nor none."""
    if choice not in (None, "auto", "none"):
        shown = choice if choice == "required" else "a named tool"
        raise InvalidRequest(f"{shown} {WHY}", "tool_choice")


def as_tool(function: FunctionDefinition) -> common_pb2.Tool:
    """Return the function as the chat template is given it."""
    parameters = msgspec.json.encode(function.parameters).decode() if function.parameters else ""
    return common_pb2.Tool(name=function.name, description=function.description, parameters=parameters)


def _tool(tool: ToolDefinition, place: str) -> common_pb2.Tool:
    if tool.type != "function":
        raise InvalidRequest(f"only tools of type 'function' are supported, got {tool.type[:32]!r}", f"{place}.type")
    if tool.function is None:
        raise InvalidRequest("a tool of type 'function' needs it", f"{place}.function")
    return as_tool(tool.function)
