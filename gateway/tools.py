"""Checks of a chat's tools and tool calls, and of what a worker has made of them."""

from fairlead.errors import InvalidRequest, Unavailable
from fairlead.v1 import common_pb2, worker_pb2
from serving.names import MAX_NAME

MAX_TOOLS = 128
TOOLS = "prompt.chat.tools"


def check_tools(chat: common_pb2.Chat) -> None:
    """Raise InvalidRequest for too many tools, for names that are missing or too long, and for calls out of place."""
    if len(chat.tools) > MAX_TOOLS:
        raise InvalidRequest(f"must hold at most {MAX_TOOLS} tools, got {len(chat.tools)}", TOOLS)
    for index, tool in enumerate(chat.tools):
        _check_name(tool.name, f"{TOOLS}[{index}].name")
    for index, message in enumerate(chat.messages):
        field = f"prompt.chat.messages[{index}]"
        if message.tool_calls and message.role != "assistant":
            raise InvalidRequest(
                f"only an assistant's message makes calls, got {message.role!r}", f"{field}.tool_calls"
            )
        if message.tool_call_id and message.role != "tool":
            raise InvalidRequest(f"only a tool's message has it, got {message.role!r}", f"{field}.tool_call_id")
        for number, call in enumerate(message.tool_calls):
            _check_name(call.name, f"{field}.tool_calls[{number}].name")


def check_rendered(chat: common_pb2.Chat, encoded: worker_pb2.EncodeResponse) -> None:
    """Raise Unavailable if a worker that knows no tools has left out those of `chat`, or its calls."""
    if encoded.HasField("output_format"):
        return
    if chat.tools or any(message.tool_calls or message.tool_call_id for message in chat.messages):
        raise Unavailable("tools: the worker that encoded the prompt is of an older version, which does not know them")


def _check_name(name: str, field: str) -> None:
    if not 0 < len(name) <= MAX_NAME:
        raise InvalidRequest(f"must have 1 to {MAX_NAME} characters, got {len(name)}", field)
