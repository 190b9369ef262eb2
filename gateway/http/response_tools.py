"""The tools of a response: functions, alone or in namespaces, custom tools, and those that OpenAI's servers run."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.http.mismatch import mismatch, within
from gateway.http.tools import (
    CHOICE,
    MODES,
    FunctionDefinition,
    TextRule,
    as_tool,
    custom_tool,
    tool_choice,
    tools_allowed,
)
from gateway.validation import MAX_TOOLS, check_count, check_name


class ResponseTool(msgspec.Struct):
    """A tool, whose type determines which fields count."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: TextRule | None = None  # of a custom tool's text
    tools: "list[ResponseTool] | None" = None  # of a namespace

    @property
    def is_known(self) -> bool:
        """Whether callers run the tool, or the tools in it."""
        return self.type in ("function", "custom", "namespace")

    def described(self) -> dict[str, Any]:
        """Return the tool as a response has it."""
        named = {"type": self.type, "name": self.name, "description": self.description}
        match self.type:
            case "namespace":
                return {**named, "tools": [tool.described() for tool in self.tools or () if tool.is_known]}
            case "custom":
                return {**named, "format": self.format or {"type": "text"}}
        return {**named, "parameters": self.parameters, "strict": self.strict}

    def as_tool(self, name: str) -> common_pb2.Tool:
        """Return the tool as the chat template is given it, by the name `name`."""
        if self.type == "custom":
            return custom_tool(name, self.description, self.format)
        return as_tool(FunctionDefinition(name, self.description, self.parameters, self.strict))


class OfferedTool(NamedTuple):
    """A tool that the model may call, and its name in its namespace; without one the namespace is empty."""

    name: str
    namespace: str = ""
    is_custom: bool = False


class ResponseTools:
    """The tools of one request, by the names by which the model knows them; `left_out` are the fields of the others.

    Raises InvalidRequest for too many, and for names that are missing or too long.
    """

    def __init__(self, tools: Sequence[ResponseTool]) -> None:
        self.left_out: list[str] = []
        self.offered: list[common_pb2.Tool] = []
        self._known: dict[str, OfferedTool] = {}
        self._check(sum(len(tool.tools or (tool,)) for tool in tools), "tools")
        self._add(tools, "tools", "")

    def add(self, tools: Any, place: str) -> None:
        """Offer more tools, which stand at `place` of the body, but for those that are known by their names."""
        self._check(len(tools) if isinstance(tools, list) else 0, place)
        try:
            more = msgspec.convert(tools, list[ResponseTool])
        except msgspec.ValidationError as error:
            raise within(mismatch(error, tools, list[ResponseTool]), place) from None
        self._check(sum(len(tool.tools or (tool,)) for tool in more), place)
        self._add(more, place, "")

    def forget(self) -> None:
        """Free what is told of the tools; their names are kept."""
        self.offered = []

    def called(self, name: str) -> OfferedTool:
        """Return the tool that the model calls `name`."""
        return self._known.get(name, OfferedTool(name))

    def choice(self, asked: Any, parallel: bool | None) -> common_pb2.ToolChoice:
        """Return which calls the model has to make; raises InvalidRequest, also for a tool that is left out."""
        match asked:
            case {"type": "function" | "custom", "name": str(name)} if name:
                namespace = asked.get("namespace")
                asked = {"type": "function", "name": self._full(namespace if isinstance(namespace, str) else "", name)}
            case {"type": str(kind)} if kind not in ("function", "custom", CHOICE, *MODES):
                raise InvalidRequest(f"there is no tool of type {kind[:32]!r} here that could be called", "tool_choice")
        return tool_choice(asked, parallel)

    def allowed(self, choice: Any) -> Sequence[common_pb2.Tool]:
        """Return the tools that the prompt offers to the model; raises InvalidRequest."""
        return tools_allowed(self.offered, choice, lambda tool: self._full(tool.namespace or "", tool.called))

    def _add(self, tools: Sequence[ResponseTool], place: str, namespace: str) -> None:
        for index, tool in enumerate(tools):
            field, name = f"{place}[{index}]", tool.name or ""
            match tool.type:
                case "function" | "custom":
                    full = full_name(namespace, name)
                    check_name(name and full, f"{field}.name")
                    if full not in self._known:
                        self.offered.append(tool.as_tool(full))
                        self._known[full] = OfferedTool(name, namespace, tool.type == "custom")
                case "namespace" if not namespace:
                    self._add(tool.tools or (), f"{field}.tools", name)
                case _:
                    self.left_out.append(field)

    def _check(self, more: int, place: str) -> None:
        check_count(len(self.offered) + more, MAX_TOOLS, "tools", place)

    def _full(self, namespace: str, name: str) -> str:
        """Return the name by which the model knows a tool that a caller names, perhaps without its namespace."""
        named = (full for full, tool in self._known.items() if tool.name == name and namespace in ("", tool.namespace))
        return name if name in self._known else next(named, name)


def full_name(namespace: str, name: str) -> str:
    """Return the name by which the model knows a tool of `namespace`, which is empty if the tool is in none."""
    return f"{namespace.removesuffix('__')}__{name}" if namespace else name
