"""Tools and calls of chats."""

import pytest

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2, scheduler_pb2
from gateway.validation import MAX_PARTS, MAX_TOOLS, check_prompt, check_tools

LARGE = scheduler_pb2.ModelInfo(max_prompt_tokens=100_000)
CALLED = common_pb2.ChatMessage(role="assistant", tool_calls=[common_pb2.ToolCall(name="f")])
ANSWERED = common_pb2.ChatMessage(role="tool", tool_call_id="a")


def test_names_and_the_number_of_tools_are_limited() -> None:
    tools = [common_pb2.Tool(name="f")] * MAX_TOOLS
    check_tools(common_pb2.Chat(tools=tools, messages=[CALLED, ANSWERED]))
    for chat, field in (
        (common_pb2.Chat(tools=[common_pb2.Tool(name="f" * 1000)]), "prompt.chat.tools[0].name"),
        (
            common_pb2.Chat(messages=[common_pb2.ChatMessage(role="assistant", tool_calls=[common_pb2.ToolCall()])]),
            "prompt.chat.messages[0].tool_calls[0].name",
        ),
    ):
        with pytest.raises(InvalidRequest) as caught:
            check_tools(chat)
        assert caught.value.field == field
    full = common_pb2.ToolCall(name="f", arguments="[" + "1," * (MAX_PARTS // 2) + "0]")
    called = [common_pb2.ChatMessage(role="assistant", tool_calls=[full] * 2)]
    with pytest.raises(InvalidRequest, match="at most 131072 strings, lists, objects and elements in arguments"):
        check_prompt(common_pb2.Prompt(chat=common_pb2.Chat(messages=called)), LARGE)
    large = [common_pb2.Tool(name="f", parameters=full.arguments)] * 2
    with pytest.raises(InvalidRequest, match="at most 131072 strings, lists, objects and elements in parameters"):
        check_prompt(common_pb2.Prompt(chat=common_pb2.Chat(messages=[CALLED], tools=large)), LARGE)
    with pytest.raises(InvalidRequest, match="tools: must hold at most 512 tools, got 513"):
        check_prompt(common_pb2.Prompt(chat=common_pb2.Chat(tools=[*tools, tools[0]])), scheduler_pb2.ModelInfo())
