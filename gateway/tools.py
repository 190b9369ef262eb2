"""Checks of a chat's tools and tool calls, and of what a worker has made of them."""

from fairlead.errors import InvalidRequest, Unavailable
from fairlead.v1 import common_pb2, worker_pb2
from serving.names import MAX_NAME, MAX_SPELLING
from serving.sampling_params import SamplingParams

TOOLS = "prompt.chat.tools"
CHOICE = "prompt.chat.tool_choice"


def check_tools(chat: common_pb2.Chat) -> None:
    """Raise InvalidRequest for names that are missing or too long, and for calls out of place."""
    for index, tool in enumerate(chat.tools):
        _check_name(tool.name, f"{TOOLS}[{index}].name")
    _check_choice(chat)
    for index, message in enumerate(chat.messages):
        field = f"prompt.chat.messages[{index}]"
        if message.tool_calls and message.role != "assistant":
            raise InvalidRequest(
                f"only an assistant's message makes calls, got {message.role!r}", f"{field}.tool_calls"
            )
        if message.tool_call_id and message.role != "tool":
            raise InvalidRequest(f"only a tool's message has it, got {message.role!r}", f"{field}.tool_call_id")
        for number, call in enumerate(message.tool_calls):
            _check_name(call.name, f"{field}.tool_calls[{number}].name", MAX_SPELLING)  # a model that errs may go on


def check_rendered(chat: common_pb2.Chat, encoded: worker_pb2.EncodeResponse) -> None:
    """Raise Unavailable if a worker that knows no tools has left out those of `chat`, or what is promised of calls."""
    if needs_call(chat.tool_choice) and not encoded.call_grammar:
        raise Unavailable("tool_choice: the worker that encoded the prompt is of an older version, which ignores it")
    if encoded.HasField("output_format"):
        return
    if chat.tools or any(message.tool_calls or message.tool_call_id for message in chat.messages):
        raise Unavailable("tools: the worker that encoded the prompt is of an older version, which does not know them")


def check_constraint(chat: common_pb2.Chat, sampling: SamplingParams) -> None:
    """Raise InvalidRequest if the output has to consist of calls, and is constrained otherwise."""
    if needs_call(chat.tool_choice) and sampling.constraint is not None:
        raise InvalidRequest(
            "not together with a required call: an output has one constraint", sampling.constraint.field
        )


def needs_call(choice: common_pb2.ToolChoice) -> bool:
    """Return whether the output has to consist of tool calls."""
    return choice.required or choice.name != ""


def _check_choice(chat: common_pb2.Chat) -> None:
    """Raise InvalidRequest for a choice that no tool can fulfil."""
    name, names = chat.tool_choice.name, [tool.name for tool in chat.tools]
    if needs_call(chat.tool_choice) and not names:
        raise InvalidRequest("a call is required, but there are no tools", CHOICE)
    if name and name not in names:
        raise InvalidRequest(f"must name one of the tools, got {name[:MAX_NAME]!r}", CHOICE)


def _check_name(name: str, field: str, most: int = MAX_NAME) -> None:
    if not 0 < len(name) <= most:
        raise InvalidRequest(f"must have 1 to {most} characters, got {len(name)}", field)
