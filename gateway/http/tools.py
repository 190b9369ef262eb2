"""Tools of OpenAI's APIs: functions that the model may call."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.validation import MAX_TOOLS, check_count, check_name
from serving.tool_arguments import arguments_object

CHOICE = "allowed_tools"
MODES = ("auto", "none", "required", "any")  # of a choice that names no tool; Mistral says any


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
    if choice in ("none", {"type": "none"}):
        return []
    if (allowed := allowed_tools(choice)) is None:
        return offered
    names = {known_as(tool) for tool in allowed.tools if tool.type in ("function", "custom")}
    if unknown := sorted(names - {tool.name for tool in offered}):
        raise InvalidRequest(f"must name some of the tools, got {unknown[0][:64]!r}", "tool_choice")
    return [tool for tool in offered if tool.name in names]


RUN_BY_CALLERS = ("function", "custom")
TEXT = "input"  # the argument of a custom tool's function
CHOICES = "must be 'auto', 'none', 'required', or the name of a function with the type 'function'"


class FunctionDefinition(msgspec.Struct):
    """A function, and its parameters as a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextRule(msgspec.Struct, omit_defaults=True):
    """The form of a custom tool's text: any text, or what a grammar derives. The model is told of it, and no more."""

    type: str | None = None
    syntax: str | None = None
    definition: str | None = None


class ChatTextRule(msgspec.Struct):
    """The form of a custom tool's text, as chats have it."""

    type: str | None = None
    grammar: TextRule | None = None


class CustomDefinition(msgspec.Struct):
    """A custom tool, which is called with a text."""

    name: str
    description: str | None = None
    format: ChatTextRule | None = None


class ToolDefinition(msgspec.Struct):
    """A tool of a chat; others than functions and custom ones are left out."""

    type: str | None = None  # a function, if it is not given
    function: FunctionDefinition | None = None
    custom: CustomDefinition | None = None

    def __post_init__(self) -> None:
        self.type = self.type or "function"


def tools_to_offer(tools: Sequence[ToolDefinition] | None, choice: Any) -> list[common_pb2.Tool]:
    """Return the tools that the prompt offers to the model: those that `choice` allows.

    Raises InvalidRequest for a tool without its definition, and for a choice of tools that are not there.
    """
    if not tools and choice is None:
        return []
    check_count(len(tools or ()), MAX_TOOLS, "tools", "tools")
    offered = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools or ()) if tool.type in RUN_BY_CALLERS]
    return list(tools_allowed(offered, choice, lambda tool: tool.called))


def left_out_tools(tools: Sequence[ToolDefinition] | None) -> list[str]:
    """Return the fields of the tools that OpenAI's servers run."""
    if not tools:
        return []
    return [f"tools[{index}]" for index, tool in enumerate(tools) if tool.type not in RUN_BY_CALLERS]


def custom_names(tools: Sequence[ToolDefinition] | None) -> frozenset[str]:
    """Return the names of the tools that are called with a text."""
    return frozenset(tool.custom.name for tool in tools or () if tool.type == "custom" and tool.custom is not None)


def tool_choice(choice: Any, parallel: bool | None) -> common_pb2.ToolChoice:
    """Return which calls the model has to make, at most one unless they may be `parallel`; raise InvalidRequest."""
    single = parallel is False
    if choice is None:
        return common_pb2.ToolChoice(single=single)
    allowed = allowed_tools(choice)
    match choice if allowed is None else allowed.mode:
        case "auto" | "none" | {"type": "auto" | "none"}:  # the latter as Anthropic's API has it
            return common_pb2.ToolChoice(single=single)
        case "required" | "any" | {"type": "required" | "any"}:
            return common_pb2.ToolChoice(required=True, single=single)
        case (
            {"type": "function" | "custom", "name": str(name)}
            | {"type": "function", "function": {"name": str(name)}}
            | {"type": "custom", "custom": {"name": str(name)}}
        ) if name:
            return common_pb2.ToolChoice(name=name, single=single)
        case _:
            got = msgspec.json.encode(choice)[:64].decode(errors="replace")
            raise InvalidRequest(f"{CHOICES}, got {got}", "tool_choice")


def as_tool(function: FunctionDefinition) -> common_pb2.Tool:
    """Return the function as the chat template is given it."""
    parameters = msgspec.json.encode(function.parameters).decode() if function.parameters else ""
    return common_pb2.Tool(
        name=function.name, description=function.description, parameters=parameters, strict=function.strict
    )


def custom_tool(name: str, description: str | None, rule: TextRule | None) -> common_pb2.Tool:
    """Return a tool that is called with a text as a function of one argument, the text."""
    told = [description] if description else []
    if rule is not None and rule.definition:
        told.append(f"The {TEXT} is a text of this {rule.syntax or ''} grammar:\n{rule.definition}")
    parameters = {"type": "object", "properties": {TEXT: {"type": "string"}}, "required": [TEXT]}
    return as_tool(FunctionDefinition(name, "\n\n".join(told) or None, parameters))


def custom_arguments(text: str) -> str:
    """Return the arguments with which the function of a custom tool is called for `text`."""
    return msgspec.json.encode({TEXT: text}).decode()


def custom_text(arguments: str) -> str:
    """Return the text with which a custom tool is called; a model that errs may write it without being an argument."""
    text = (arguments_object(arguments) or {}).get(TEXT)
    return text if isinstance(text, str) else arguments


def _tool(tool: ToolDefinition, place: str) -> common_pb2.Tool:
    if tool.type == "custom" and tool.custom is not None:
        custom = tool.custom
        check_name(custom.name, f"{place}.custom.name")
        rule = None if custom.format is None else custom.format.grammar
        return custom_tool(custom.name, custom.description, rule)
    if tool.type == "function" and tool.function is not None:
        check_name(tool.function.name, f"{place}.function.name")
        return as_tool(tool.function)
    raise InvalidRequest(f"a tool of type {tool.type!r} needs it", f"{place}.{tool.type}")
