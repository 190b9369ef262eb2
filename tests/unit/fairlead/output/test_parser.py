"""Outputs as their parts: whatever way a text is cut, the parts are those of the whole text."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.output.argument_types import typed
from fairlead.output.events import AnswerText, Arguments, CallBegun, Part, Reasoning
from fairlead.output.parser import FORMATS, OutputParser
from fairlead.output.source import MOST_HEAD, MOST_SPACE
from tests.unit.fairlead.output.whole_text import Parsed, joined, parse

CALL = '{"name": "weather", "arguments": {"city": "Paris"}}'
PARIS = ("call", "weather", '{"city": "Paris"}')
XML_PARIS = ("call", "weather", '{"city": "Paris", "days": 2, "note": "\\"rain\\"\\n"}')
SHORT = ("call", "weather", XML_PARIS[2].replace("\\n", ""))
QWEN = """I look.
<tool_call>
<function=weather>
<parameter=city>
Paris
</parameter>
<parameter=days>
2
</parameter>
<parameter=note>
"rain"

</parameter>
</function>
</tool_call>
<tool_call>
<function=clock>
</function>
</tool_call>
Done"""
GLM = """I look.
<tool_call>weather
<arg_key>city</arg_key>
<arg_value>Paris</arg_value>
<arg_key>days</arg_key><arg_value>2</arg_value>
<arg_key>note</arg_key>
<arg_value>"rain"
</arg_value>
</tool_call>
<tool_call>clock</tool_call>
Done"""
GLM_HALF_A_PAIR = (
    r'<tool_call>weather<arg_key>places</arg_key><arg_value>["\ud83d", "\ud83d\ude00"]</arg_value></tool_call>'
)
FRAGMENTS = [
    *["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<think>", "</think>", "<tool_", "<", "[TOOL", "</"],
    *["{", "}", "[", "]", ",", ";", '"', "\\", ":", "\\u0041", '\\"', " ", "\n", "\n" * 40, "a", "1", "é", "{}"],
    *['{"arguments": {"a": 1}, "name": "f"}', '{"name": "f"}', '{"name": "f", "arguments": null}', '{"name": "other"}'],
    *[
        '{"name": "f", "parameters": "{\\"a\\": 1}"}',
        '{"type": "function", "function": {"name": "f", "arguments": "{}"}}',
    ],
    *['{"args": {"b": 2}, "name": "f"}', '{"name": "f", "b": 2}'],
    *['{"name": "f", "arguments": ', '{"name":"f","parameters":{', '"name"', '{"type": "function", "name": "f", '],
    *[
        "<function=f>",
        "<parameter=a>",
        "<parameter=number>",
        "</parameter>",
        "</function>",
        "f",
        "<arg_key>",
        "a</arg_key>",
    ],
    *["```json\n", "```", "{{", "}}", "f[ARGS]", "[CALL_ID]1", "f{", "<|python_tag|>", '<function name="f">\n'],
    *[
        "</function>\n</tool_call>",
        "\n<parameter=a>\n",
        "<parameter name='a'>",
        *["'", "\\'", "\\d", "\\x41", "{'a': 'b'}", "{'name': 'f', 'arguments': {'a': \"it's\"}}"],
        "None}",
        "None",
        "Tru",
        "e",
        '{"a": True,}',
    ],
    *["<arg_key>number</arg_key><arg_value>", "<arg_value>", "</arg_value>", "</arg_", "42"],
    *[CALL, f"<tool_call>{CALL}</tool_call>", f"[TOOL_CALLS][{CALL}, {CALL}]", '{"a": "}", "b": [1, {}]}', "x" * 500],
]
TYPES = {"f": {"number": ["integer"]}, "weather": {"days": ["integer", "null"], "places": ["array"]}, "clock": {}}
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join)


def parsed(pieces: Sequence[str], tool_calls: str, reasoning: str = "", in_reasoning: bool = False) -> Parsed:
    """What comes of pieces that arrive one after the other."""
    parser = OutputParser(tool_calls, reasoning, in_reasoning, TYPES)
    parts: list[Part] = []
    for piece in pieces:
        parts += parser.push(piece)
        parser.check_invariants()
    parts += parser.end()
    parser.check_invariants()
    thought, whole = "", list[tuple[str, ...]]()
    for part in parts:
        match part:
            case AnswerText():
                whole.append(("text", part.text))
            case Reasoning():
                assert not whole, "nothing comes before the reasoning"
                thought += part.text
            case CallBegun():
                assert part.number == sum(1 for kind, *_ in whole if kind == "call")
                whole.append(("call", part.name, ""))
            case Arguments():
                kind, name, arguments = whole.pop()
                assert kind == "call"
                assert part.number == sum(1 for each, *_ in whole if each == "call")
                whole.append(("call", name, arguments + part.text))
    return Parsed(thought, joined(whole))


@given(TEXTS, st.lists(st.integers(0, 700), max_size=12), st.sampled_from([*FORMATS, ""]), st.booleans(), st.booleans())
def test_the_parts_do_not_depend_on_how_a_text_is_cut(
    text: str, cuts: list[int], tool_calls: str, thinks: bool, in_reasoning: bool
) -> None:
    reasoning = "think" if thinks else ""
    expected = parse(text, tool_calls, reasoning, in_reasoning and thinks)
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[begin:end] for begin, end in pairwise(places)]
    for cut in ([text], list(text), pieces):
        assert parsed(cut, tool_calls, reasoning, in_reasoning and thinks) == expected


@pytest.mark.parametrize(
    ("tool_calls", "text", "parts"),
    [
        ("hermes", f"<tool_call>\n{CALL}\n</tool_call>", [PARIS]),
        ("hermes", f"I look.\n<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}", [("text", "I look."), PARIS, PARIS]),
        ("hermes", f"<tool_call>{CALL}</tool_call>\nDone. ", [PARIS, ("text", "Done. ")]),
        ("hermes", "Tags like <tool_call> are text.", [("text", "Tags like <tool_call> are text.")]),
        ("hermes", '<tool_call>{"name": "g"}</tool_call>', [("text", '<tool_call>{"name": "g"}</tool_call>')]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"":1</tool_call>b', [("call", "f", '{"":1'), ("text", "b")]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>', [("call", "f", '{"a": "</tool_call>')]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "\\', [("call", "f", '{"a": "\\')]),
        ("hermes", f"<tool_call>{CALL}</tool", [PARIS, ("text", "</tool")]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}, "id": "\\"}"}so', [("call", "f", "{}"), ("text", "so")]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}, "id": "\\', [("call", "f", "{}")]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"": "\\""}}', [("call", "f", '{"": "\\""}')]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"\t":\n"b\nc"}}', [("call", "f", '{"\\t":\n"b\\nc"}')]),
        ("hermes", f"{CALL}", [("text", CALL)]),
        ("llama", CALL.replace("arguments", "parameters"), [PARIS]),
        ("llama", f"{CALL}; {CALL}", [PARIS, PARIS]),
        ("llama", '{"type": "function", "name": "f", "parameters": {}}', [("call", "f", "{}")]),
        ("llama", '{"answer": 42}', [("text", '{"answer": 42}')]),
        ("llama", f"So: {CALL}", [("text", f"So: {CALL}")]),
        ("mistral", f"[TOOL_CALLS] [{CALL}, {CALL}]", [PARIS, PARIS]),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "123456789"}]', [("call", "f", "{}")]),
        ("mistral", "[TOOL_CALLS] [nothing]", [("text", "[TOOL_CALLS] [nothing]")]),
        ("qwen_coder", QWEN, [("text", "I look."), XML_PARIS, ("call", "clock", "{}"), ("text", "Done")]),
        ("qwen_coder", QWEN.replace("\n", ""), [("text", "I look."), SHORT, ("call", "clock", "{}"), ("text", "Done")]),
        ("qwen_coder", QWEN[: QWEN.index("is\n")], [("text", "I look."), ("call", "weather", '{"city": "Par')]),
        ("qwen_coder", QWEN.partition("\n<parameter=d")[0][8:], [(*XML_PARIS[:2], '{"city": "Paris"')]),
        ("qwen_coder", "<tool_call><function=f> oh", [("call", "f", "{}"), ("text", "oh")]),
        ("qwen_coder", "<tool_call>\nWhat?", [("text", "<tool_call>\nWhat?")]),
        ("glm", GLM, [("text", "I look."), XML_PARIS, ("call", "clock", "{}"), ("text", "Done")]),
        ("glm", "<tool_call>may be text", [("text", "<tool_call>may be text")]),
        ("glm", f"<tool_call>{CALL}", [PARIS]),
        ("glm", GLM_HALF_A_PAIR, [("call", "weather", '{"places": ["�", "😀"]}')]),
        ("of the future", f"<tool_call>{CALL}</tool_call>", [("text", f"<tool_call>{CALL}</tool_call>")]),
    ],
)  # fmt: skip
def test_a_text_is_split_into_its_parts(tool_calls: str, text: str, parts: list[tuple[str, ...]]) -> None:
    assert parsed([text], tool_calls).parts == parts
    assert parsed(list(text), tool_calls).parts == parts


@pytest.mark.parametrize(
    ("text", "in_reasoning", "expected"),
    [
        ("<think>\nHm.\n</think>\n\nYes.", False, ("Hm.", [("text", "Yes.")])),
        ("Hm.\n</think>\n\nYes.", True, ("Hm.", [("text", "Yes.")])),
        ("Hm.", True, ("Hm.", [])),
        ("<think>\nHm.\n</think>\n\nYes.", True, ("Hm.", [("text", "Yes.")])),
        ("Yes.", False, ("", [("text", "Yes.")])),
        ("No, <think> comes late.", False, ("", [("text", "No, <think> comes late.")])),
        (f"<think>Hm.</think><tool_call>{CALL}</tool_call>", False, ("Hm.", [PARIS])),
        (f"<think><tool_call>{CALL}</tool_call></think>", False, (f"<tool_call>{CALL}</tool_call>", [])),
    ],
)
def test_reasoning_comes_before_the_answer(text: str, in_reasoning: bool, expected: Parsed) -> None:
    assert parsed([text], "hermes", "think", in_reasoning) == expected


@pytest.mark.parametrize("spare", [0, 1])
def test_the_name_of_a_call_with_elements_may_need_as_much(spare: int) -> None:
    head = f"<function={'n' * (MOST_HEAD + 1 - spare - len('<function=>'))}>"
    parts = (
        [("call", head[10:-1], "{}"), ("text", "Done")] if spare else [("text", f"<tool_call>{head}</function>Done")]
    )
    for cut in ([f"<tool_call>{head}</function>Done"], list(f"<tool_call>{head}</function>Done")):
        assert parsed(cut, "qwen_coder").parts == parts
    for more in ("n", "nn"):
        parser = OutputParser("qwen_coder", "", False)
        assert parser.push("<tool_call>" + head[: MOST_HEAD - 1]) == []
        assert parser.push(more) == [AnswerText("<tool_call>"), AnswerText(head[: MOST_HEAD - 1] + more)]


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("5", ["integer"], 5),
        ("3.0", ["integer"], 3),
        ("3.5", ["integer"], "3.5"),
        ("x", ["integer", "number", "boolean", "null", "object"], "x"),
        ("true", ["integer", "boolean"], True),
        ("TRUE", ["boolean"], True),
        (" 0", ["boolean"], False),
        ("2", ["boolean"], "2"),
        ("2", ["number"], 2),
        ("2.0", ["number"], 2.0),
        ("2.5", ["number"], 2.5),
        ("1e3", ["number"], 1000),
        ("inf", ["number"], "inf"),
        ("nan", ["number"], "nan"),
        ("null", ["integer", "null"], None),
        (" None ", ["null"], None),
        ("{}", ["object"], {}),
        ("[1]", ["object"], "[1]"),
        ("[1]", ["object", "array"], [1]),
        ("{}", ["array"], "{}"),
        ("{'a': [True, None, '\\d']}", ["object"], {"a": [True, None, "\\d"]}),
        ("{1, 2}", ["object", "array"], "{1, 2}"),
        ("{'a': {1}}", ["object"], "{'a': {1}}"),
        ("[1e999]", ["array"], "[1e999]"),
        ('{"a": NaN}', ["object"], '{"a": NaN}'),
        ("[-Infinity]", ["array"], "[-Infinity]"),
        ("[" * 9000, ["array"], "[" * 9000),
        ("[" * 500 + "'", ["array"], "[" * 500 + "'"),
        ("5", ["string", "integer"], 5),
        ("5", [], "5"),
    ],
)
def test_the_value_of_a_bare_text(text: str, types: list[str], value: object) -> None:
    assert repr(typed(text, types)) == repr(value)


def test_reasoning_begins_after_no_more_white_space_than_is_held_back() -> None:
    for spaces, parts in ((MOST_SPACE, [Reasoning("Hm")]), (MOST_SPACE + 1, [AnswerText("<think>Hm")])):
        parser = OutputParser("", "think", False)
        first = parser.push(" " * spaces)
        assert first == ([] if spaces == MOST_SPACE else [AnswerText(" " * spaces)])
        assert parser.push("<think>Hm") == parts
    other = OutputParser("", "think", False)
    assert other.push("<thi") == []
    assert other.push("s") == [AnswerText("<this")]


def test_parts_are_told_as_soon_as_they_are_certain() -> None:
    parser = OutputParser("hermes", "", False)
    assert parser.push("I look.") == [AnswerText("I look.")]
    assert parser.push("\n<tool") == []
    assert parser.push('_call>{"name": "weather", "arguments"') == []
    assert parser.push(': {"ci') == [CallBegun(0, "weather"), Arguments(0, '{"ci')]
    assert parser.push('ty": "Par') == [Arguments(0, 'ty": "Par')]
    assert parser.push('is"}}') == [Arguments(0, 'is"}')]
    assert parser.push("</tool_call>") == []
    assert parser.end() == []


def test_an_argument_that_can_only_be_a_string_is_told_as_it_arrives() -> None:
    parser = OutputParser("qwen_coder", "", False, {"f": {"où": ["string"]}})
    assert parser.push("<tool_call><function=f><parameter=où>Zür") == [
        CallBegun(0, "f"),
        Arguments(0, '{"où": '),
        Arguments(0, '"'),
        Arguments(0, "Zür"),
    ]
    assert parser.push("ich") == [Arguments(0, "ich")]


def test_white_space_that_may_belong_to_a_marker_is_held_back() -> None:
    for spaces, text in ((MOST_SPACE, "So."), (MOST_SPACE + 1, "So. ")):
        parser = OutputParser("hermes", "", False)
        assert parser.push("So." + " " * spaces) == [AnswerText(text)]
        assert parser.push(f"<tool_call>{CALL}")[0] == CallBegun(0, "weather")


def test_text_that_cannot_become_a_call_is_not_held_back() -> None:
    parser = OutputParser("llama", "", False)
    assert parser.push('{"answer') == [AnswerText('{"answer')]
    late = OutputParser("llama", "", False)
    assert late.push('{"name": "' + "x" * 600) == [AnswerText('{"name": "' + "x" * 600)]


def test_no_more_is_held_back_than_a_call_may_need_before_its_arguments() -> None:
    for begin in ('{"name": "' + "n" * MOST_HEAD, " " * MOST_HEAD):
        parser = OutputParser("llama", "", False)
        assert parser.push(begin[:MOST_HEAD]) == []
        assert parser.push(begin[0]) == [AnswerText(begin[:MOST_HEAD] + begin[0])]


@pytest.mark.parametrize("spare", [0, 1])
def test_a_call_may_need_so_much_before_its_arguments(spare: int) -> None:
    head = '{"name": "", "arguments": '
    name = "n" * (MOST_HEAD + 1 - spare - len(head))
    text = head.replace('""', f'"{name}"') + "{}}"
    assert parsed([text], "llama").parts == ([("call", name, "{}")] if spare else [("text", text)])
