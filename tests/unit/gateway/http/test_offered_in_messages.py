"""Tools that messages and items offer in the middle of a conversation, and documents whose content is a text."""

import json
from typing import Any

import pytest

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.core.response_store import ResponseStore
from gateway.http.messages import messages
from gateway.http.responses import ResponseToGenerate
from gateway.http.responses_request import read
from gateway.validation import MAX_TOOLS

ASKED = {"role": "user", "content": "x"}
SCHEMA = {"type": "object"}
WEATHER = {"name": "weather", "input_schema": SCHEMA}
CLOCK = {"name": "clock", "input_schema": SCHEMA}
FUNCTION = {"type": "function", "name": "weather", "parameters": SCHEMA}


def added(tool: Any) -> dict[str, Any]:
    return {"type": "tool_addition", "tool": tool}


def removed(name: str) -> dict[str, Any]:
    return {"type": "tool_removal", "tool": {"type": "tool_reference", "name": name}}


def defined(tool: Any) -> dict[str, Any]:
    return added({"type": "tool_definition", "definition": tool})


def message(*turns: object, **fields: object) -> common_pb2.Chat:
    body = {"max_tokens": 1, "messages": [ASKED, *turns], **fields}
    return messages(json.dumps(body).encode()).generations()[0].prompt.chat


def response(*items: object, **fields: object) -> ResponseToGenerate:
    request = read(json.dumps({"input": [ASKED, *items], **fields}).encode())
    return ResponseToGenerate(request, None, ResponseStore(0, 0))


def names(chat: common_pb2.Chat) -> list[str]:
    return [tool.name for tool in chat.tools]


@pytest.mark.parametrize(
    ("blocks", "offered"),
    [
        ([defined(CLOCK)], ["weather", "clock"]),
        ([defined(WEATHER)], ["weather"]),
        ([removed("weather")], []),
        ([defined(CLOCK), removed("weather")], ["clock"]),
        ([removed("weather"), added({"type": "tool_reference", "name": "weather"})], ["weather"]),
        ([removed("weather"), defined(WEATHER)], ["weather"]),
        ([added({"type": "mcp_toolset_reference", "mcp_server_name": "s"})], ["weather"]),
        ([added(None), added({"type": "tool_reference", "name": 5})], ["weather"]),
    ],
)
@pytest.mark.parametrize("role", ["user", "system", "assistant"])
def test_blocks_of_a_message_change_the_tools(blocks: list[Any], offered: list[str], role: str) -> None:
    """Anthropic's betas have them; they say nothing by themselves."""
    chat = message({"role": role, "content": blocks}, ASKED, tools=[WEATHER])
    assert names(chat) == offered
    assert [said.content for said in chat.messages] == ["x", "x"]
    beside = message({"role": role, "content": [*blocks, {"type": "text", "text": "y"}]}, ASKED, tools=[WEATHER])
    assert [said.content for said in beside.messages] == ["x", "y", "x"]


@pytest.mark.parametrize(
    ("blocks", "field"),
    [
        ([defined({"name": 5})], "messages[1].content[0].tool.definition.name"),
        ([defined(5)], "messages[1].content[0].tool.definition"),
        ([defined({"name": f"f{number}"}) for number in range(MAX_TOOLS + 1)], f"messages[1].content[{MAX_TOOLS}]"),
    ],
)
def test_a_wrong_definition_in_a_block_is_refused_by_name(blocks: list[Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        message({"role": "user", "content": blocks})
    assert refused.value.field == field


def test_items_of_an_input_offer_tools() -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [FUNCTION, {"type": "custom", "name": "patch"}]}
    asked = response(item, tools=[FUNCTION], tool_choice={"type": "custom", "name": "patch"})
    chat = asked.generations()[0].prompt.chat
    assert names(chat) == ["weather", "patch"]
    assert chat.tool_choice.name == "patch"


def test_additional_tools_say_nothing_and_are_not_left_out() -> None:
    asked = response({"type": "additional_tools", "tools": [FUNCTION, {"type": "web_search"}]})
    assert [said.content for said in asked.generations()[0].prompt.chat.messages] == ["x"]
    assert asked.left_out() == ["input[1].tools[1]"]


@pytest.mark.parametrize(
    ("tools", "field"),
    [
        ("x", "input[1].tools"),
        ([{"name": "f"}], "input[1].tools[0].type"),
        ([{"type": "function", "name": ""}], "input[1].tools[0].name"),
        ([FUNCTION] * (MAX_TOOLS + 1), "input[1].tools"),
    ],
)
def test_wrong_tools_of_an_item_are_refused_by_name(tools: object, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        response({"type": "additional_tools", "tools": tools}).generations()
    assert refused.value.field == field


def test_the_content_of_a_document_may_be_a_text() -> None:
    document = {"type": "document", "source": {"type": "content", "content": "d"}}
    assert message({"role": "user", "content": [document]}).messages[1].content == "d"
    result = {"type": "tool_result", "tool_use_id": "i", "content": [document]}
    assert message({"role": "user", "content": [result]}).messages[1].content == "d"
