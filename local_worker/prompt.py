"""A chat as plain data, its form for templates and engines, and the notation of its answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class EarlierCall(NamedTuple):
    """A call that an assistant's message makes; `arguments` are a JSON object, or the text that stands for one."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str


class ChatMessage(NamedTuple):
    """A message of a chat; one of role `tool` is the result of the call with the id `tool_call_id`."""

    role: str
    content: str
    tool_calls: tuple[EarlierCall, ...] = ()
    tool_call_id: str = ""


class CallChoice(NamedTuple):
    """The calls that the model has to make; see ToolChoice of common.proto. Without a choice the model decides."""

    is_required: bool = False
    name: str = ""
    is_single: bool = False

    @property
    def needs_call(self) -> bool:
        """Whether the output has to consist of calls."""
        return self.is_required or bool(self.name)


ANY_CHOICE = CallChoice()


class OutputFormat(NamedTuple):
    """The notation in which the model writes what is not plain text; see OutputFormat of common.proto."""

    tool_calls: str = ""
    reasoning: str = ""
    in_reasoning: bool = False
    response_template: str = ""
    argument_types: str = ""


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat, and how the model's chat template renders it.

    A tool is an object `{"name", "description", "parameters"}`, of which the last is a JSON schema. `strict` says of
    tools, by name, whether the arguments of their calls have to be valid under it; of others those of required calls.
    """

    messages: tuple[ChatMessage, ...]
    add_generation_prompt: bool = True  # end with the beginning of an answer
    continue_final_message: bool = False  # leave the last message's end open
    variables: Mapping[str, Any] = field(default_factory=dict)  # further ones that the template is given
    wishes: Mapping[str, Any] = field(default_factory=dict)  # further ones, if the template knows and accepts them
    tools: tuple[Mapping[str, Any], ...] = ()
    choice: CallChoice = ANY_CHOICE
    strict: Mapping[str, bool] = field(default_factory=dict)

    @property
    def needs_calls(self) -> bool:
        """Whether the template must have a form for tool calls, which the chat has or may lead to."""
        return bool(self.tools) or any(message.tool_calls for message in self.messages)

    @property
    def promises_calls(self) -> bool:
        """Whether it is promised that the answer has calls, or that their arguments are valid."""
        return self.choice.needs_call or any(self.strict.values())


def turns_of(chat: Chat) -> list[dict[str, Any]]:
    """Return the messages. A tool's result names the tool, if an earlier message has the call."""
    names = {call.id: call.name for message in chat.messages for call in message.tool_calls}
    return [_turn(message, names) for message in chat.messages]


def tools_of(chat: Chat) -> list[dict[str, Any]] | None:
    """Return the tools, None if there are none: templates ask only whether they are given any."""
    return [{"type": "function", "function": dict(tool)} for tool in chat.tools] or None


def _turn(message: ChatMessage, names: Mapping[str, str]) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        turn["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id:
        turn["tool_call_id"] = message.tool_call_id
    if message.tool_call_id in names:
        turn["name"] = names[message.tool_call_id]
    return turn


def _call(call: EarlierCall) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call.arguments, str) else dict(call.arguments)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
