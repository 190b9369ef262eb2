"""Messages of Anthropic's API: texts, or blocks of text, tool calls and results."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.http.chat_prompt import arguments_text, media_in, result_text, text_in
from gateway.http.mismatch import mismatch, within
from gateway.validation import MAX_CALLED, MAX_MESSAGES, MAX_TOOLS, check_count, check_name

CHANGES = ("tool_addition", "tool_removal")
OF_ASSISTANT = ("text", "tool_use", "compaction", "thinking", "redacted_thinking", *CHANGES)
EXPECTED = {"user": "'text' and 'tool_result'", "system": "'text'"}


class Block(msgspec.Struct):
    """A part of a message, whose fields depend on its type."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None
    source: Any = None  # of a document, or of what a search has found
    title: Any = None
    tool: Any = None  # that is offered from here on, or no longer

    def is_left_out(self, role: str) -> bool:
        """Return whether the block is of a tool that Anthropic's servers have run, or of them in another way."""
        if role == "assistant":
            return self.type not in OF_ASSISTANT
        return self.type.endswith(("_tool_use", "_tool_result")) or self.type == "container_upload"


class MessageBlocks(msgspec.Struct):
    """One message of the conversation: a text, or blocks of several types."""

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[Block], msgspec.Meta(max_length=MAX_MESSAGES)] | None

    def left_out(self, place: str) -> Iterator[str]:
        """Yield the blocks that are left out, and the parts of results, below `place`."""
        for index, block in enumerate(self.content if isinstance(self.content, list) else ()):
            if block.type == "tool_result":
                yield from (f"{place}[{index}].content[{part}]" for part in media_in(block.content))
            elif block.is_left_out(self.role):
                yield f"{place}[{index}]"

    def as_messages(self, place: str) -> Iterator[common_pb2.ChatMessage]:
        """Yield the results of tools, and then what is said, which is left out if there is only something else.

        Earlier reasoning is ignored. Raise InvalidRequest, which names the block below `place`, for other types.
        """
        if self.content is None or isinstance(self.content, str):
            yield common_pb2.ChatMessage(role=self.role, content=self.content or "")
            return
        texts: list[str] = []
        calls: list[common_pb2.ToolCall] = []
        others = 0  # blocks that say nothing here
        for index, block in enumerate(self.content):
            match self.role, block.type:
                case _, "text":
                    texts.append(block.text or "")
                case "assistant", "tool_use":
                    check_name(block.name or "", f"{place}[{index}].name", MAX_CALLED)
                    arguments = arguments_text(block.input)
                    calls.append(common_pb2.ToolCall(id=block.id, name=block.name, arguments=arguments))
                case "assistant", "compaction":
                    texts.append(result_text(block.content))
                case "assistant", "thinking" | "redacted_thinking":
                    pass
                case _, kind if kind in CHANGES:
                    others += 1
                case "user", "tool_result":
                    others += 1
                    content = result_text(block.content)
                    yield common_pb2.ChatMessage(role="tool", content=content, tool_call_id=block.tool_use_id)
                case "user", "document" | "search_result" if (text := text_in(msgspec.to_builtins(block))) is not None:
                    texts.append(text)
                case _ if block.is_left_out(self.role):
                    pass
                case _:
                    problem = f"only blocks of type {EXPECTED[self.role]} are supported here, got {block.type[:32]!r}"
                    raise InvalidRequest(problem, f"{place}[{index}].type")
        if texts or calls or not others:
            yield common_pb2.ChatMessage(role=self.role, content="\n".join(texts), tool_calls=calls)


class ToolSchema(msgspec.Struct):
    """A tool that the caller runs; Anthropic's own tools have other types."""

    name: str | None = None
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def is_left_out(self) -> bool:
        """Whether the tool is one of Anthropic's own."""
        return self.type not in (None, "custom")


class ToolChoice(msgspec.Struct):
    """The rule for tool calls: whether the model may or must call tools, which one, and several at one time."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def tools_after(tools: Sequence[ToolSchema] | None, turns: Sequence[MessageBlocks]) -> list[ToolSchema]:
    """Return those of `tools`, and of the tools that blocks define, which are offered after all `turns`.

    Raises InvalidRequest, which names the block, for a definition of another form.
    """
    known, withdrawn = list(tools or ()), set[str | None]()
    for place, block in _changes(turns):
        match block.type, block.tool:
            case "tool_addition", {"type": "tool_definition", "definition": definition}:
                tool = _definition(definition, f"{place}.tool.definition")
                withdrawn.discard(tool.name)
                known += [tool] if all(tool.name != each.name for each in known) else []
                check_count(len(known), MAX_TOOLS, "tools", place)
            case "tool_addition", {"name": str(name)}:
                withdrawn.discard(name)
            case "tool_removal", {"name": str(name)}:
                withdrawn.add(name)
    return [tool for tool in known if tool.name not in withdrawn]


def _changes(turns: Sequence[MessageBlocks]) -> Iterator[tuple[str, Block]]:
    for number, turn in enumerate(turns):
        for index, block in enumerate(turn.content if isinstance(turn.content, list) else ()):
            if block.type in CHANGES:
                yield f"messages[{number}].content[{index}]", block


def _definition(value: Any, place: str) -> ToolSchema:
    try:
        return msgspec.convert(value, ToolSchema)
    except msgspec.ValidationError as error:
        raise within(mismatch(error, value, ToolSchema), place) from None


def tools_of(tools: Sequence[ToolSchema] | None, choice: ToolChoice | None) -> list[common_pb2.Tool]:
    """Return the tools that the prompt offers to the model: none if the caller chooses none.

    Raises InvalidRequest for too many.
    """
    check_count(len(tools or ()), MAX_TOOLS, "tools", "tools")
    if choice is not None and choice.type == "none":
        return []
    return [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools or ()) if not tool.is_left_out]


def left_out_tools(tools: Sequence[ToolSchema] | None) -> list[str]:
    """Return the fields of the tools of Anthropic's own."""
    return [f"tools[{index}]" for index, tool in enumerate(tools or ()) if tool.is_left_out]


def choice_of(tools: Sequence[ToolSchema] | None, choice: ToolChoice | None) -> common_pb2.ToolChoice:
    """Return which calls the model has to make.

    Raises InvalidRequest for a choice of a tool without its name, and of a tool that is left out.
    """
    if choice is None:
        return common_pb2.ToolChoice()
    name = (choice.name or "") if choice.type == "tool" else ""
    if choice.type == "tool" and not name:
        raise InvalidRequest("a choice of type 'tool' needs the tool's name", "tool_choice.name")
    for tool in tools or ():
        if name and tool.name == name and tool.is_left_out:
            raise InvalidRequest(
                f"there is no tool of type {(tool.type or '')[:32]!r} here that could be called", "tool_choice"
            )
    return common_pb2.ToolChoice(
        required=choice.type == "any", name=name, single=bool(choice.disable_parallel_tool_use)
    )


def _tool(tool: ToolSchema, place: str) -> common_pb2.Tool:
    check_name(tool.name or "", f"{place}.name")
    parameters = msgspec.json.encode(tool.input_schema or {}).decode()
    return common_pb2.Tool(name=tool.name, description=tool.description, parameters=parameters, strict=tool.strict)
