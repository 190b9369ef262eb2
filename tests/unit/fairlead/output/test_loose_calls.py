"""Calls a little off the format of a model, which models write now and then."""

import json

import pytest

from fairlead.output.model_json import read_json
from fairlead.output.parser import FORMATS
from fairlead.output.thinking import END, MOST_HELD
from tests.unit.fairlead.output.test_parser import CALL, PARIS, parsed

LOOSE = {
    '{"arguments": {"city": "Paris"}, "name": "weather"}': '{"city": "Paris"}',
    '{"parameters": {"city": "Paris"}, "id": "1", "name": "weather"}': '{"city": "Paris"}',
    '{"name": "weather"}': "{}",
    '{"name": "weather", "arguments": null}': "{}",
    '{"name": "weather", "arguments": ""}': "{}",
    '{"name": "weather", "arguments": []}': "{}",
    '{"name": "weather", "arguments": None}': "{}",
    '{"arguments": {"city": "Paris", "now": True,}, "name": "weather"}': '{"city": "Paris", "now": true}',
    '{"name": "weather", "arguments": "{\\"city\\": \\"Paris\\"}"}': '{"city": "Paris"}',
    '{"type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}}': '{"city": "Paris"}',
    '{"function": "weather", "arguments": {"city": "Paris"}}': '{"city": "Paris"}',
    '{"name": "weather", "args": {"city": "Paris"}}': '{"city": "Paris"}',
    '{"input": {"city": "Paris"}, "name": "weather"}': '{"city": "Paris"}',
    "{'name': 'weather', 'arguments': {'city': \"Paris'\", 'now': True}}": '{"city": "Paris\'", "now": true}',
    """{'name': 'weather', 'arguments': '{"city": "Paris"}'}""": '{"city": "Paris"}',
}
WRITTEN = {  # in a format, but a little off it
    "hermes": [
        f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>",
        f"<tool_call>\n{{{CALL}}}\n</tool_call>",
        f"<tool_call>\n{{\n{CALL}",
    ],
    "llama": [f"<|python_tag|>{CALL}", f"[{CALL}]", f"<|python_tag|>[{CALL}]\n"],
    "mistral": [
        '[TOOL_CALLS]weather[ARGS]{"city": "Paris"}',
        '[TOOL_CALLS] weather[CALL_ID]a1b2c3d4e[ARGS] {"city": "Paris"}',
        '[TOOL_CALLS]weather{"city": "Paris"}',
    ],
    "qwen_coder": [
        '<tool_call>\n<function="weather">\n<parameter="city">\nParis\n</parameter>\n</function>\n</tool_call>',
        '<tool_call><function name="weather">\n<parameter name="city">\nParis\n</parameter>\n</function></tool_call>',
        '<tool_call>\n<function=weather>\n{"city": "Paris"}\n</function>\n</tool_call>',
        '<function=weather>{"city": "Paris"}</function>',
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</function>\n</tool_call>",
    ],
}
NEARLY = {  # JSON, and what it becomes
    """{"a": [True, None , False,\n], "b": "True, }",}""": '{"a": [true, null , false\n], "b": "True, }"}',
    r"""{'a': 'it\'s "so"}', "b": [ '\x41'], 'c': ''}""": r"""{"a": "it's \"so\"}", "b": [ "\u0041"], "c": ""}""",
    r"""{"a": "it\'s \d+\.\x41 \n\u0041"}""": r"""{"a": "it's \\d+\\.\\x41 \n\u0041"}""",
    r"""{"b": "C:\dir\\"}""": r"""{"b": "C:\\dir\\"}""",
    '{"a": "one \\\ntwo"}': r'{"a": "one \\\ntwo"}',
}
LOST = '{"name": "weather", "city": "Paris"}'  # as a call it would have no arguments
WRAPPED = {"hermes": "<tool_call>\n{}\n</tool_call>", "llama": "{}", "mistral": "[TOOL_CALLS] [{}]"}


@pytest.mark.parametrize("text", LOOSE)
@pytest.mark.parametrize("name", WRAPPED)
def test_calls_a_little_off_the_format_are_calls_of_tools_that_were_offered(name: str, text: str) -> None:
    written = WRAPPED[name].replace("{}", text)
    assert parsed([written], name).parts == [("call", "weather", LOOSE[text])]
    assert parsed([*written], name).parts == [("call", "weather", LOOSE[text])]
    other = written.replace("weather", "unknown")
    assert parsed([*other], name).parts == parsed([other], name).parts == [("text", other)]


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRITTEN.items() for text in texts])
def test_a_call_whose_marks_are_a_little_off_is_a_call(name: str, text: str) -> None:
    assert parsed([text], name).parts == parsed([*text], name).parts == [PARIS]


@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        (
            "qwen_coder",
            "<tool_call><function=weather>\n<parameter=city>\nParis\n<parameter=days>\n2\n</parameter></function></tool_call>",
            '{"city": "Paris", "days": 2}',
        ),
        (
            "glm",
            "<tool_call>weather<arg_key>city</arg_key>\n<arg_value>Paris\n<arg_key>days</arg_key><arg_value>2</arg_value>"
            "</tool_call>",
            '{"city": "Paris", "days": 2}',
        ),
    ],
)
def test_an_argument_that_is_not_closed_ends_before_the_next_one(name: str, text: str, arguments: str) -> None:
    expected = [("call", "weather", arguments)]
    assert parsed([text], name).parts == parsed([*text], name).parts == expected


@pytest.mark.parametrize(
    "text", ["[1, 2]", "<|python_tag|>print(1)", '[{"name": "weather"', "[TOOL_CALLS]none{x}", "```"]
)
@pytest.mark.parametrize("name", FORMATS)
def test_text_that_only_looks_like_the_beginning_of_a_call_stays_text(name: str, text: str) -> None:
    assert parsed([*text], name).parts == parsed([text], name).parts == [("text", text)]


@pytest.mark.parametrize("in_reasoning", [False, True])
@pytest.mark.parametrize(("name", "written"), [("hermes", CALL), ("qwen_coder", CALL), ("glm", CALL), ("hermes", LOST)])
def test_a_call_ends_reasoning_that_is_left_open(name: str, written: str, in_reasoning: bool) -> None:
    """A model that calls a tool while it thinks ends its output with the call."""
    begin = "" if in_reasoning else "<think>\n"
    text = f"{begin}Hm, <tool_call>?\n<tool_call>\n{written}\n</tool_call>"
    expected = [PARIS] if written == CALL else [("text", f"<tool_call>\n{LOST}\n</tool_call>")]
    for pieces in ([text], [*text]):
        assert parsed(pieces, name, "think", in_reasoning) == ("Hm, <tool_call>?", expected)
    other = text.replace("weather", "unknown")
    assert parsed([*other], name, "think", in_reasoning) == (other.removeprefix(begin), [])


@pytest.mark.parametrize("spare", [0, 1])
def test_so_much_of_a_call_in_reasoning_is_held_back(spare: int) -> None:
    call = f"\n{CALL}\n</tool_call>"
    rest = " " * (MOST_HELD - len(call) - len(END) + spare)
    text = f"<think>Hm.<tool_call>{call}{rest}{END}Yes."
    thought = parsed([*text], "hermes", "think")
    assert thought == parsed([text], "hermes", "think")
    assert (PARIS in thought.parts) == bool(spare)


@pytest.mark.parametrize("written", NEARLY)
@pytest.mark.parametrize("name", WRAPPED)
def test_arguments_that_are_told_as_they_arrive_are_json(name: str, written: str) -> None:
    told = NEARLY[written]
    assert read_json(written) == json.loads(told)
    text = WRAPPED[name].replace("{}", CALL.replace('{"city": "Paris"}', written))
    assert parsed([text], name).parts == parsed([*text], name).parts == [("call", "weather", told)]


@pytest.mark.parametrize("text", ["it's", "{'a': it's}", "{'a' 'b'}", "{'a': 'b'", "{'a': NaN}", "('a', 'b')"])
def test_a_text_that_is_not_even_nearly_json_has_no_value(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 1 column|no number"):
        read_json(text)


@pytest.mark.parametrize("name", WRAPPED)
def test_no_argument_of_a_call_is_lost(name: str) -> None:
    written = WRAPPED[name].replace("{}", LOST)
    assert parsed([*written], name).parts == [("text", written)]


ELEMENTS = "<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>"


@pytest.mark.parametrize(
    ("name", "written"), [("hermes", ELEMENTS), ("qwen_coder", CALL), ("glm", CALL)], ids=["hermes", "qwen", "glm"]
)
def test_a_model_may_write_calls_as_its_relatives_do(name: str, written: str) -> None:
    text = f"I look.\n<tool_call>\n{written}\n</tool_call>\n<tool_call>{written}</tool_call>"
    assert parsed([text], name).parts == parsed([*text], name).parts == [("text", "I look."), PARIS, PARIS]
    other = f"<tool_call>\n{written}\n</tool_call>".replace("weather", "unknown")
    assert parsed([other], name).parts == parsed([*other], name).parts == [("text", other)]


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>\n{CALL}\n{CALL}\n</tool_call>",
        f"<tool_call>[{CALL}, {CALL}]</tool_call>",
        f"<tool_call>{CALL}, {CALL}",
        f"<tool_call>{CALL}}}</tool_call>\n<tool_call>[{CALL}]\n",
    ],
)
def test_several_calls_may_stand_between_the_tags(text: str) -> None:
    assert parsed([text], "hermes").parts == parsed([*text], "hermes").parts == [PARIS, PARIS]


@pytest.mark.parametrize(
    "text", ["<function=weather>\n{}</function>\n</tool_call>", "<function=weather>\n{}</function>"]
)
def test_a_bare_function_is_a_call_of_a_tool_that_was_offered(text: str) -> None:
    city = "<parameter=city>\nParis\n</parameter>\n"
    for arguments, told in ((city, '{"city": "Paris"}'), ("", "{}")):
        written = "I look.\n\n" + text.replace("{}", arguments)
        expected = [("text", "I look."), ("call", "weather", told)]
        assert parsed([written], "qwen_coder").parts == parsed([*written], "qwen_coder").parts == expected
        other = written.replace("weather", "unknown")
        assert ("text", other) in parsed([*other], "qwen_coder").parts
    prose = "Write `<function=weather>` to call, or <function=NAME>."
    assert parsed([*prose], "qwen_coder").parts == [("text", prose)]
