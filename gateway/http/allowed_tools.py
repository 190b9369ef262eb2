"""The choice `allowed_tools` of OpenAI's APIs: of all tools, the model may or must call some."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2

CHOICE = "allowed_tools"


class Named(msgspec.Struct):
    """The name of a function or a custom tool, as chats have it."""

    name: str


class AllowedTool(msgspec.Struct):
    """One of the tools that may be called; those that OpenAI's servers run may have no name."""

    type: str
    name: str | None = None
    namespace: str | None = None
    function: Named | None = None
    custom: Named | None = None

    @property
    def called(self) -> str:
        """The name of a tool that the caller runs, empty for others."""
        named = self.function or self.custom
        return self.name or (named.name if named is not None else "")


class AllowedTools(msgspec.Struct):
    """The tools that may be called, and whether one of them has to be."""

    mode: Literal["auto", "required"]
    tools: list[AllowedTool]


def allowed_tools(choice: Any) -> AllowedTools | None:
    """Return the tools that `choice` allows, None if it is another choice; raises InvalidRequest."""
    match choice:
        case {"type": "allowed_tools", "allowed_tools": {**fields}} | {"type": "allowed_tools", **fields}:
            try:
                return msgspec.convert(fields, AllowedTools)
            except msgspec.ValidationError as error:
                raise InvalidRequest(str(error), "tool_choice") from error
    return None


def tools_allowed(
    offered: Sequence[common_pb2.Tool], choice: Any, known_as: Callable[[AllowedTool], str]
) -> Sequence[common_pb2.Tool]:
    """Return those of `offered` that `choice` allows, which the model knows as `known_as` says.

    Raises InvalidRequest for a choice of a function that is not offered.
    """
    if choice == "none":
        return []
    if (allowed := allowed_tools(choice)) is None:
        return offered
    names = {known_as(tool) for tool in allowed.tools if tool.type in ("function", "custom")}
    if unknown := sorted(names - {tool.name for tool in offered}):
        raise InvalidRequest(f"must name some of the tools, got {unknown[0][:64]!r}", "tool_choice")
    return [tool for tool in offered if tool.name in names]
