"""Outputs read by a response template: what comes of them is what transformers makes of the whole text."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers.utils.chat_parsing import ResponseParser

from fairlead.completion import Chunk
from fairlead.output.events import AnswerText, Arguments, CallBegun, Part, Reasoning
from fairlead.output.parser import OutputParser
from fairlead.output.response_template import ResponseTemplate
from fairlead.parsed_output import ParsedOutput
from fairlead.v1 import common_pb2

ANSWER = {"close": "<end>", "content": "text"}
THOUGHT = {"open": "<think>", "close": "</think>"}
FUNCTION = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}


def template(calls: dict[str, Any] | None = None, **fields: dict[str, Any]) -> str:
    """A template with a start that all have."""
    known = {"content": ANSWER, "thinking": THOUGHT, **fields, **({"tool_calls": calls} if calls else {})}
    return json.dumps({"start_anchor": "<model>", "defaults": {"role": "assistant"}, "fields": known})


TEMPLATES = {
    "json": template(
        {
            "open_pattern": r"\s*<call>",
            "close": "</call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        }
    ),
    "named json": template(
        {
            "open_pattern": r"<call (?P<name>\w+)>",
            "close": ["</call>", "</call>!"],
            "repeats": True,
            "content": "json",
            "transform": FUNCTION,
        }
    ),
    "elements": template(
        {
            "open_pattern": r"\s*<call (?P<name>[a-z]+|[0-9]{1,3})>(?:\n)?",
            "close_pattern": r"\s*</call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<(?P<key>\w+)=(?P<value>.*?)/>", "merge_duplicates": True},
            "transform": FUNCTION,
        }
    ),
    "lax json": template(
        {
            "open_pattern": r"<call (?P<name>\w+)>",
            "close": "</call>",
            "repeats": True,
            "content": "json",
            "content_args": {"unquoted_keys": True, "string_delims": [["'", "'"]]},
            "transform": FUNCTION,
        },
        content={"content": "text", "content_args": {"strip": False}},
    ),
    "lines": template(
        {
            "open_pattern": r"<call (?P<name>\w+)>",
            "close": "</call>",
            "repeats": True,
            "content": "kv-lines",
            "content_args": {"kv_sep": "=", "value_parser": {"name": "json", "args": {"allow_non_json": True}}},
            "transform": FUNCTION,
        }
    ),
    "list": template(
        {
            "open": "[CALLS]",
            "close": "[/CALLS]",
            "content": "json",
            "transform_each": True,
            "transform": {"function": {"name": "{tool}", "arguments": "{given.arguments}"}},
        },
        content={"open": "<say>", "close": "</say>"},
        note={"open": "<note>", "close": "</note>"},
    ),
}


def calls(content: str, options: dict[str, Any] | None = None, transform: Any = FUNCTION, **more: bool) -> str:
    """A template whose calls have this content and stand between `<call NAME>` and `</call>`."""
    edges = {"open_pattern": r"<call (?P<name>\w+)>", "close": "</call>", "repeats": True}
    return template({**edges, "content": content, "content_args": options or {}, "transform": transform, **more})


GIVEN = {"function": {"name": "{name}", "arguments": {"x": "{content}"}}}
ELEMENTS = {"tag_pattern": r"<(?P<key>\w+)=(?P<value>.*?)/>"}
WHOLE = {"function": "{content}"}
# Outputs of which transformers makes something, with their templates.
READABLE = [
    (calls("json"), '<call f>{"x": 1}</call>so<call g> {}</call>'),
    (TEMPLATES["named json"], '<call f>{"x": 1}</call>!so<call g>{}</call>'),
    (
        calls("json", {"string_delims": [["'", "'"], ["<q>", "</q>"]]}),
        """<call f>{"x": 'a"b', "y": <q>\n</q>, "z": 1}""",
    ),
    (calls("json", {"unquoted_keys": True}), '<call f>{x:1,y:{z:"a"}}</call>'),
    (calls("json", {"allow_non_json": True}, GIVEN), "<call f> so \n</call>"),
    (calls("json", {"allow_non_json": True, "strip": False}, GIVEN), "<call f> so \n</call>"),
    (
        calls("json", {}, WHOLE),
        '<call f>{"name": "g", "arguments": {"a": 1}}</call>so<call f>{"name": "h", "arguments": {}}',
    ),
    (
        calls("json", {}, {"function": {"name": "{content.n}", "arguments": "{content.a.b}"}}),
        '<call f>{"n": "g", "a": {"b": {}}}',
    ),
    (
        calls("json", {}, {"function": {"name": "{name}", "arguments": "{x}"}}, transform_each=True),
        '<call f>[{"x": {}}, {"x": {"a": 1}, "name": "g"}]',
    ),
    (
        calls("json", {}, {"function": {"name": "{name}", "arguments": "{x}"}}, transform_each=True),
        "<call f>[]</call>so",
    ),
    (
        calls(
            "json", {}, {"function": {"name": "f", "arguments": {"a": ["1", "2"], "e": ["1"], "b": "null", "d": "{}"}}}
        ),
        "<call f>{}",
    ),
    (
        calls("text", {}, {"function": {"name": "{name}", "arguments": {"x": "{content}", "y": ["{name}", 1, None]}}}),
        "<call f> so ",
    ),
    (calls("text", {"strip": False}, GIVEN), "<call f> so \n</call>"),
    (calls("int", {}, GIVEN), "<call f> 12\n</call>"),
    (calls("float", {}, GIVEN), "<call f> 12\n</call>"),
    (calls("bool", {}, GIVEN), "<call f> True\n</call><call f>1</call><call f>no</call>"),
    (calls("kv-lines"), "<call f>\n x : y: z \nnone\nn:2\n</call>"),
    (
        calls("kv-lines", {"line_sep": ";", "kv_sep": "->", "value_parser": {"name": "int"}}),
        "<call f> x -> 1;y->2</call>",
    ),
    (calls("kv-lines", {"strip": False}), "<call f> x : y\n</call>"),
    (calls("kv-lines", {"strip": False, "value_parser": {}}), "<call f> x : y\n</call>"),
    (calls("xml-inline", {**ELEMENTS, "merge_duplicates": True}), "<call f><x=\n1/><x=2/><x=3/><y=4/></call>"),
    (calls("xml-inline", ELEMENTS), "<call f><x=1/><x=2/></call>"),
    (calls("xml-inline", {**ELEMENTS, "value_parser": {"name": "json"}}), "<call f><x=[1, {}]/></call>"),
    (calls("xml-inline", {**ELEMENTS, "value_parser": {}}), "<call f><x= 1 /></call>"),
    (template(thinking={"open": "<t>"}), "Yes <t> Hm. <end>"),
    (
        template(thinking={"open": "<t>", "close": ["</t>"], "content_args": {"strip": False}}),
        "Yes <t> Hm. </t> so <end> what",
    ),
    (template(content={"content": "text", "close_pattern": "<end>|<stop>\n*"}), " Yes <stop>\n\n No"),
    (template(note={"open": "<note>", "close": "</note>"}), "a<note>b</note> c<think> d</think>e "),
    (template(note={"open": "<think>!", "close": "</note>"}), "a<think>!b</note> c<think>d</think>e"),
    (
        template({"open": "<c>", "close": "</c>", "content": "json"}),
        '<c>{"function": {"name": "f", "arguments": {"c": 1}}}</c> so <c>[{"function": {"name": "g", "arguments": 1}}]',
    ),
]
TOOLS: list[dict[Any, Any] | Callable[..., Any]] = [
    {
        "name": "f",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "b": {"type": ["boolean", "null"]},
                "c": {"type": "number"},
                "d": {"type": "object"},
            },
        },
    }
]
TYPES = {"f": {"a": ["integer"], "b": ["boolean", "null"], "c": ["number"], "d": ["object"]}}
PIECES = {
    "json": ["<call>", '<call>\n{"name": "f", "arguments": {"x": "é"}}\n</call>', '{"name": "g", "arguments": {}}'],
    "named json": ["<call f>", '<call f> {"a": [1, "}"]} </call>', "</call>!", "{}", "<call f>[1]</call>", "!"],
    "elements": [
        "<call f>",
        "<a=1.0/>",
        "<a=1/><a=2/>",
        "<b=None/>",
        "<c=x/>",
        "\n  ",
        "<b=TRUE/>",
        "<call 12>",
        "<d={}/>",
    ],
    "lax json": ["<call f>", "<call f>{a:'x, {y: 1',b:[2]}</call>", "{a:1}", "'", "<call f>{a:5,c:'2.50'}</call>"],
    "lines": ["<call f>", "x=1\n", "y = two\n", "none\n", "<call g>x=[1]</call>"],
    "list": ["[CALLS]", "[/CALLS]", '[CALLS][{"tool": "f", "given": {"arguments": {"a": "7"}}}][/CALLS]', "[", "<say>"],
}
COMMON = ["<think>", "</think>", "<end>", "</call>", "</say>", "<note>", "</note>", " ", "\n\n", "Hm", "<", "</", "é"]


def texts(name: str) -> st.SearchStrategy[tuple[str, str]]:
    """Outputs of a model with the template `name`."""
    joined = st.lists(st.sampled_from([*PIECES[name], *COMMON]), max_size=10).map("".join)
    return joined.map(lambda text: (name, text))


def read(pieces: Sequence[str], text: str, in_reasoning: bool = False) -> tuple[str, str, list[tuple[str, Any]]]:
    """The answer, the reasoning and the calls."""
    parser = OutputParser("", "", in_reasoning, TYPES, text)
    parts: list[Part] = []
    for piece in pieces:
        parts += parser.push(piece)
        parser.check_invariants()
    parts += parser.end()
    parser.check_invariants()
    names = [part.name for part in parts if isinstance(part, CallBegun)]
    arguments = [
        "".join(part.text for part in parts if isinstance(part, Arguments) and part.number == number)
        for number in range(len(names))
    ]
    return (
        "".join(part.text for part in parts if isinstance(part, AnswerText)),
        "".join(part.text for part in parts if isinstance(part, Reasoning)),
        [(name, meaning(each)) for name, each in zip(names, arguments, strict=True)],
    )


def meaning(arguments: str) -> Any:
    """The value of a call's arguments, which are the text itself where a model wrote text in place of an object."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def expected(text: str, spec: str, prompt: str) -> tuple[str, str, list[tuple[str, Any]]]:
    """What transformers makes of an output; ValueError or TypeError where it makes nothing of it."""
    parser = ResponseParser(json.loads(spec), prefix=prompt, tools=TOOLS)
    events = [*parser.feed(text), *parser.finalize()[1]]
    closed = [(event["field"], event["value"]) for event in events if event["type"] == "region_close"]
    calls = [value for field, value in closed if field == "tool_calls"]
    functions = [each["function"] for value in calls for each in (value if isinstance(value, list) else [value])]
    return (
        "".join(value for field, value in closed if field == "content"),
        "".join(value for field, value in closed if field == "thinking"),
        [
            (function["name"], meaning(written) if isinstance(written := function["arguments"], str) else written)
            for function in functions
        ],
    )


@given(st.sampled_from(sorted(TEMPLATES)).flatmap(texts), st.lists(st.integers(0, 200), max_size=8), st.booleans())
@example(("lax json", "<call f>''"), [], False)
@example(("lax json", "<call f>'{\"a\": 1}'"), [], False)
def test_an_output_is_what_transformers_makes_of_it_however_it_is_cut(
    given_text: tuple[str, str], cuts: list[int], in_reasoning: bool
) -> None:
    name, text = given_text
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[begin:end] for begin, end in pairwise(places)]
    try:
        whole = expected(text, TEMPLATES[name], "<model><think>" if in_reasoning else "<model>")
    except (ValueError, KeyError, TypeError):  # it gives up where a call is none
        return
    for cut in ([text], list(text), pieces):
        assert read(cut, TEMPLATES[name], in_reasoning) == whole


@pytest.mark.parametrize(("spec", "text"), READABLE)
def test_every_kind_of_content_is_what_transformers_makes_of_it(spec: str, text: str) -> None:
    whole = expected(text, spec, "<model>")
    for cut in ([text], list(text)):
        assert read(cut, spec) == whole


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("named json", "<call f>[1]</call>, he said"),
        ("json", '<call>{"arguments": {}}</call>'),
        ("list", '[CALLS][{"given": 1}][/CALLS]'),
        ("list", "[CALLS][1][/CALLS]"),
        ("lax json", "<call f>{a: 'b</call>"),
    ],
)
def test_output_that_is_no_call_is_text(name: str, text: str) -> None:
    answer, _, calls = read([text], TEMPLATES[name])
    if calls:
        assert (name, calls, answer) == ("named json", [("f", [1])], ", he said")
    else:
        assert answer == text.lstrip()


NESTED = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "text", "known"),
    [
        ("list", f"[CALLS]{NESTED}[/CALLS]", (f"[CALLS]{NESTED}[/CALLS]", [])),
        ("elements", f"<call f><d={NESTED}/></call>", ("", [("f", {"d": NESTED})])),
        ("lines", f"<call f>x={NESTED}</call>", ("", [("f", {"x": NESTED})])),
    ],
)
def test_json_that_is_nested_too_deeply_to_be_read_is_text(name: str, text: str, known: tuple[str, Any]) -> None:
    answer, _, found = read([text], TEMPLATES[name])
    assert (answer, found) == known


@pytest.mark.parametrize(
    ("name", "text", "known"),
    [
        (
            "list",
            r'[CALLS][{"tool": "\ud83df", "given": {"arguments": {"\uDC00": "\\ud83d"}}}][/CALLS]',
            ("�f", r'{"�": "\\ud83d"}'),
        ),
        (
            "elements",
            r'<call f><d={"x": ["\ud83d\ude00", "\ude00\ud83d"]}/></call>',
            ("f", '{"d": {"x": ["😀", "��"]}}'),
        ),
        ("lax json", r"""<call f>{a:'x',b:"\uDBFF"}</call>""", ("f", '{"a": "x", "b": "�"}')),
        ("lines", r'<call f>x="\ud83d"</call>', ("f", '{"x": "�"}')),
    ],
)
def test_half_of_a_surrogate_pair_is_told_as_a_character_that_messages_can_carry(
    name: str, text: str, known: tuple[str, str]
) -> None:
    output_format = common_pb2.OutputFormat(response_template=TEMPLATES[name], argument_types=json.dumps(TYPES))
    output = ParsedOutput("id", output_format)
    pieces = output.add(Chunk(text, ())).tool_calls
    [call] = output.tool_calls
    assert (call.name, call.arguments) == known
    assert common_pb2.ToolCall(name=call.name, arguments=call.arguments).SerializeToString()
    assert msgspec.json.encode([(piece.name, piece.arguments) for piece in pieces])


def test_calls_are_numbered_without_regions_that_cannot_be_read() -> None:
    parser = OutputParser("", "", False, {}, TEMPLATES["list"])
    parts = parser.push('[CALLS][1][/CALLS][CALLS][{"tool": "f", "given": {"arguments": {}}}][/CALLS]')
    assert parts == [AnswerText("[CALLS][1][/CALLS]"), CallBegun(0, "f"), Arguments(0, "{}")]


def test_parts_are_told_as_soon_as_they_are_certain() -> None:
    parser = OutputParser("", "", True, {}, TEMPLATES["json"])
    assert parser.push(" Hm") == [Reasoning("Hm")]
    assert parser.push(" so.\n</thi") == [Reasoning(" so.")]
    assert parser.push("nk>\nWell") == [AnswerText("Well")]
    assert parser.push("\n <cal") == []
    assert parser.push('l>{"name": "f", "arguments": {"x": 1') == [CallBegun(0, "f"), Arguments(0, '{"x": 1')]
    assert parser.push("}}</call>") == [Arguments(0, "}")]
    assert parser.push("<call> no") == []
    assert parser.end() == [AnswerText("<call> no")]
    named = OutputParser("", "", False, {}, TEMPLATES["named json"])
    assert named.push('<call f> {"x": 1') == [CallBegun(0, "f"), Arguments(0, '{"x": 1')]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("[]", "must be an object"),
        ('{"fields": {"content": {}}}', "start_anchor"),
        ('{"start_anchor": "a", "version": 2, "fields": {"content": {}}}', "version 1"),
        (template(other={"close": "x"}), r"\['content', 'other'\]"),
        (template(other={"open": []}), "open must be"),
        (template(other={"open": ["", "x"]}), "open must be"),
        (template(other={"open": "a", "content": "yaml"}), "yaml"),
        (template(other={"open": "a", "content": "xml-inline"}), "tag_pattern"),
        (template(other={"open": "a", "content": "kv-lines", "content_args": {"value_parser": {"name": "x"}}}), "'x'"),
        (template(other={"open_pattern": "a|$"}), "matches the empty"),
        (template(other={"open_pattern": "a$"}), r"'\$'"),
        (template(other={"open_pattern": r"(?<!a)b"}), "cannot be looked for"),
        (template(other={"open_pattern": r"a\b"}), "cannot be looked for"),
        (template(other={"open_pattern": "a("}), "is wrong"),
        (template(other={"open_pattern": "a*"}), "matches the empty text"),
    ],
)
def test_a_template_that_cannot_be_followed_is_refused(spec: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ResponseTemplate.parse(spec)


def test_the_message_begins_after_the_last_anchor() -> None:
    known = ResponseTemplate.parse(TEMPLATES["json"])
    assert known.begun("<model>a<end><model>b<end><model><think>") == "<think>"
    assert known.begun("nowhere") == ""


def test_the_texts_that_a_template_needs() -> None:
    known = ResponseTemplate.parse(TEMPLATES["elements"])
    for mark in ("<think>", "</think>", "<end>", "<call 1", "<call 12>", "<call 12>\n", "<call", "call", "</call>"):
        assert known.needs(mark)
    for mark in ("<s>", "<tool>", "<call 1234>", "end of text"):
        assert not known.needs(mark)
