"""Messages of Anthropic's API: texts, or blocks of text, tool calls and results."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.http.content import Content, text_of
from gateway.validation import MAX_MESSAGES

EXPECTED = {"user": "'text' and 'tool_result'", "assistant": "'text', 'tool_use' and 'thinking'"}


class Block(msgspec.Struct):
    """A part of a message, whose fields depend on its type."""

    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] | None = None
    tool_use_id: str = ""
    content: Content = None


class MessageBlocks(msgspec.Struct):
    """One message of the conversation: a text, or blocks of several types."""

    role: Literal["user", "assistant"]
    content: str | Annotated[list[Block], msgspec.Meta(max_length=MAX_MESSAGES)] | None

    def as_messages(self, place: str) -> Iterator[common_pb2.ChatMessage]:
        """Yield the results of tools, and then what is said, which is left out if there are only results.

        Earlier reasoning is ignored. Raise InvalidRequest, which names the block below `place`, for other types.
        """
        if self.content is None or isinstance(self.content, str):
            yield common_pb2.ChatMessage(role=self.role, content=self.content or "")
            return
        texts: list[str] = []
        calls: list[common_pb2.ToolCall] = []
        results = 0
        for index, block in enumerate(self.content):
            match self.role, block.type:
                case _, "text":
                    texts.append(block.text)
                case "assistant", "tool_use":
                    arguments = msgspec.json.encode(block.input or {}).decode()
                    calls.append(common_pb2.ToolCall(id=block.id, name=block.name, arguments=arguments))
                case "assistant", "thinking" | "redacted_thinking":
                    pass
                case "user", "tool_result":
                    results += 1
                    content = text_of(block.content, f"{place}[{index}].content")
                    yield common_pb2.ChatMessage(role="tool", content=content, tool_call_id=block.tool_use_id)
                case _:
                    problem = f"only blocks of type {EXPECTED[self.role]} are supported here, got {block.type[:32]!r}"
                    raise InvalidRequest(problem, f"{place}[{index}].type")
        if texts or calls or not results:
            yield common_pb2.ChatMessage(role=self.role, content="\n".join(texts), tool_calls=calls)


class ToolSchema(msgspec.Struct):
    """A tool that the caller runs; Anthropic's own tools have other types."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct):
    """The rule for tool calls: whether the model may or must call tools, which one, and several at one time."""

    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool | None = None


def tools_of(tools: Sequence[ToolSchema] | None, choice: ToolChoice | None) -> list[common_pb2.Tool]:
    """Return the tools that the prompt offers to the model: none if the caller chooses none.

    Raises InvalidRequest for tools of Anthropic's own.
    """
    for index, tool in enumerate(tools or ()):
        if tool.type not in (None, "custom"):
            got = tool.type[:32]
            raise InvalidRequest(f"only tools of type 'custom' are supported, got {got!r}", f"tools[{index}].type")
    if choice is not None and choice.type == "none":
        return []
    return [_tool(tool) for tool in tools or ()]


def choice_of(choice: ToolChoice | None) -> common_pb2.ToolChoice:
    """Return which calls the model has to make; raise InvalidRequest for a choice of a tool without its name."""
    if choice is None:
        return common_pb2.ToolChoice()
    if choice.type == "tool" and not choice.name:
        raise InvalidRequest("a choice of type 'tool' needs the tool's name", "tool_choice.name")
    name = choice.name if choice.type == "tool" else ""
    return common_pb2.ToolChoice(
        required=choice.type == "any", name=name, single=bool(choice.disable_parallel_tool_use)
    )


def _tool(tool: ToolSchema) -> common_pb2.Tool:
    parameters = msgspec.json.encode(tool.input_schema or {}).decode()
    return common_pb2.Tool(name=tool.name, description=tool.description, parameters=parameters, strict=tool.strict)
