"""Chats reach a template in the form that it accepts, and wishes where it knows them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fairlead.output.events import CallBegun
from fairlead.output.parser import OutputParser
from fairlead.v1 import common_pb2
from local_worker.chat_template import template_variables
from local_worker.prompt import Chat, ChatMessage, EarlierCall
from local_worker.tokenizer import HuggingFaceTokenizer
from local_worker.wire import content_from
from tests.unit.local_worker.test_output_format import HERMES, SHIPPED, tokenizer

SAID = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
FIRST_ONLY = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('at the beginning') }}"
    "{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
)
ALTERNATING = (
    "{% if messages[0].role == 'system' %}system: {{ messages[0].content }}\n"
    "{% set messages = messages[1:] %}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}"
    "{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
)
SILENT = (
    "{% for m in messages %}{% if m.role != 'system' or loop.first %}{{ m.role }}: {{ m.content }}\n{% endif %}"
    "{% endfor %}"
)
RULED = Chat(
    (
        ChatMessage("system", "a"),
        ChatMessage("system", "b"),
        ChatMessage("user", "c"),
        ChatMessage("system", "d"),
        ChatMessage("assistant", "e"),
        ChatMessage("system", "f"),
        ChatMessage("user", "g"),
    ),
    add_generation_prompt=False,
)
FITTED = "system: a\n\nb\nuser: c\n\nd\nassistant: e\nuser: f\n\ng\n"


def rendered(made: HuggingFaceTokenizer, chat: Chat) -> str:
    return made.decode(made.encode_chat(chat).ids)


@pytest.mark.parametrize("template", [FIRST_ONLY, ALTERNATING, SILENT])
def test_a_template_with_one_system_message_gets_later_ones_as_the_users(template: str) -> None:
    assert rendered(tokenizer(template), RULED) == FITTED


def test_a_template_with_system_messages_anywhere_gets_them_where_they_are() -> None:
    lines = [f"{message.role}: {message.content}\n" for message in RULED.messages]
    assert rendered(tokenizer(SAID), RULED) == "".join(lines)


def test_a_late_system_message_alone_is_a_message_of_the_user() -> None:
    chat = Chat((ChatMessage("user", "a"), ChatMessage("system", "b")), add_generation_prompt=False)
    assert rendered(tokenizer(ALTERNATING), chat) == "user: a\n\nb\n"


TEXTUAL = HERMES.replace("{{ call.function.arguments | tojson }}", "{{ '' + call.function.arguments }}")
LISTING = HERMES.replace(
    "{{ call.function.arguments | tojson }}",
    "{ {%- for name, value in call.function.arguments | items %}{{ name | tojson }}: {{ value | tojson }}"
    "{% endfor -%} }",
)


def called(arguments: str) -> Chat:
    """A chat as it comes over the wire, with a call of these arguments."""
    message = common_pb2.ChatMessage(role="assistant", tool_calls=[common_pb2.ToolCall(name="f", arguments=arguments)])
    chat = common_pb2.Chat(messages=[common_pb2.ChatMessage(role="user", content="hi"), message])
    content: Any = content_from(common_pb2.Prompt(chat=chat))
    assert isinstance(content, Chat)
    return content


@pytest.mark.parametrize(
    ("arguments", "by_object", "by_text", "by_items"),
    [
        ('{"a": "b"}', '{"a": "b"}', '{"a": "b"}', '{"a": "b"}'),
        ('{"a": "b\nc"}', '{"a": "b\\nc"}', '{"a": "b\\nc"}', '{"a": "b\\nc"}'),
        ('{"a": "/', '"{\\"a\\": \\"/"', '{"a": "/', "{}"),
        ("[1]", '"[1]"', "[1]", "{}"),
        ("", "{}", "{}", "{}"),
        ("null", "{}", "{}", "{}"),
    ],
)
def test_a_template_gets_arguments_as_it_takes_them(
    arguments: str, by_object: str, by_text: str, by_items: str
) -> None:
    for template, expected in ((HERMES, by_object), (TEXTUAL, by_text), (LISTING, by_items)):
        text = rendered(tokenizer(template), called(arguments))
        assert f'"arguments": {expected}' in text, (template, text)


def test_half_of_a_character_in_arguments_is_replaced() -> None:
    [call] = called('{"a": "x\\ud83d"}').messages[1].tool_calls
    assert call == EarlierCall("", "f", {"a": "x\ufffd"})


EFFORTS = (
    "{% if reasoning_effort is defined and reasoning_effort not in ('low', 'high') %}{{ raise_exception('no') }}"
    "{% endif %}"
    "{{ reasoning_effort }} {{ enable_thinking }}" + SAID
)


@pytest.mark.parametrize(
    ("wishes", "variables", "begins", "granted"),
    [
        ({"reasoning_effort": "high", "verbosity": "low"}, {}, "high user", ("reasoning_effort",)),
        ({"reasoning_effort": "most", "enable_thinking": True}, {}, " user", ()),
        ({"enable_thinking": True}, {"enable_thinking": False}, " Falseuser", ()),
        ({"messages": [], "unknown": 1}, {}, " user", ()),
    ],
)
def test_wishes_are_granted_where_the_template_knows_them(
    wishes: dict[str, Any], variables: dict[str, Any], begins: str, granted: tuple[str, ...]
) -> None:
    made = tokenizer(EFFORTS)
    chat = Chat((ChatMessage("user", "hi"),), variables=variables, wishes={**wishes})
    encoded = made.encode_chat(chat)
    assert made.decode(encoded.ids).startswith(begins)
    assert encoded.granted == granted


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% generation %}{{ a }}{% endgeneration %}{% for x in b %}{{ x.c }}{% break %}{% endfor %}", {"a", "b"}),
        ("{# c #}{% set d = 1 %}{{ d }}{% if e is defined %}{% endif %}", {"e"}),
        ("{% if %}", set()),
    ],
)
def test_the_variables_of_a_template(template: str, expected: set[str]) -> None:
    assert template_variables(template) == expected


WEATHER = {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}
CALLED = (
    ChatMessage("user", "Rain?"),
    ChatMessage(
        "assistant", "I look.", (EarlierCall("1", "weather", {"city": "Ulm"}), EarlierCall("2", "time", '{"zone": "U'))
    ),
    ChatMessage("tool", "rain", (), "1"),
    ChatMessage("tool", "noon", (), "2"),
    ChatMessage("user", "And now?"),
)
WRITTEN = (
    'assistant: I look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "time", "arguments": {"zone": "U}\n</tool_call>\n'
    "user: <tool_response>\nrain\n</tool_response>\n<tool_response>\nnoon\n</tool_response>\nAnd now?\n"
)


@pytest.mark.parametrize("template", [SAID, ALTERNATING])
def test_a_template_without_tools_gets_them_as_text_of_messages(template: str) -> None:
    chat = Chat(CALLED, add_generation_prompt=False, tools=(WEATHER,))
    text = rendered(tokenizer(template), chat)
    assert text.startswith("user: You can call functions.")
    assert json.dumps(WEATHER) in text
    assert text.partition("Rain?\n")[2] == WRITTEN
    ruled = replace(chat, messages=(ChatMessage("system", "Be brief."), *CALLED))
    assert rendered(tokenizer(template), ruled).startswith("system: Be brief.\n\nYou can call functions.")
    later = replace(chat, tools=())
    assert rendered(tokenizer(template), later) == f"user: Rain?\n{WRITTEN}"


def test_a_call_that_the_written_tools_ask_for_is_read() -> None:
    chat = Chat((ChatMessage("user", "Rain?"),), tools=(WEATHER,))
    answer = tokenizer(SAID).encode_chat(chat).output_format
    parser = OutputParser(answer.tool_calls, answer.reasoning, answer.in_reasoning)
    parts = [
        *parser.push('<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'),
        *parser.end(),
    ]
    assert [part.name for part in parts if isinstance(part, CallBegun)] == ["weather"]


def test_a_template_that_a_model_ships_for_reading_calls_is_left_to_it() -> None:
    made = tokenizer(SAID, SHIPPED)
    chat = Chat((ChatMessage("user", "Rain?"),), add_generation_prompt=False, tools=(WEATHER,))
    assert rendered(made, chat) == "user: Rain?\n"
