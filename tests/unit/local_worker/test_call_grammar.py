"""Grammars of tool calls: what they derive is parsed as calls that are allowed, and they derive what models write."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from fairlead.errors import InvalidRequest
from fairlead.output.events import AnswerText, Arguments, CallBegun, Reasoning
from fairlead.output.parser import OutputParser
from local_worker.argument_types import argument_types
from local_worker.call_grammar import SYNTAXES, call_grammar
from local_worker.engine.grammars import ConstraintBroken, Grammars
from local_worker.prompt import ANY_CHOICE, CallChoice, Chat, ChatMessage, OutputFormat
from local_worker.vocabulary import Vocabulary
from local_worker.xml_call_grammar import XML_SYNTAXES
from serving.constraint import CALLS, Constraint

EOS, MARKER = 256, 257  # the latter stands for Mistral's marker
CITY = {"enum": ["Paris", "Oslo"]}
WEATHER = {
    "name": "weather",
    "description": "Tells it.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {"city": CITY},
    },
}
CLOCK = {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}
TOOLS = (WEATHER, CLOCK)
SPELLED = [*(bytes([byte]) for byte in range(256)), b"<eos>", b"[TOOL_CALLS]"]
REQUIRED = CallChoice(is_required=True)
FORMATS = list(SYNTAXES)
PARIS: tuple[str, dict[str, Any]] = ("weather", {"city": "Paris", "days": 2})
NOON: tuple[str, dict[str, Any]] = ("clock", {})


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    """With bytes, the end of a sequence, and one more special token."""
    vocabulary = Vocabulary([EOS], SPELLED, [MARKER]).load()
    return Grammars(lambda: vocabulary)


def grammar(
    name: str,
    choice: CallChoice = ANY_CHOICE,
    reasoning: str = "",
    in_reasoning: bool = False,
    tools: Sequence[dict[str, Any]] = TOOLS,
    **strict: bool,
) -> Constraint | None:
    """What an answer in the format `name` has to be; with Mistral's, a special token stands for its marker."""
    chat = Chat((ChatMessage("user", "?"),), tools=tuple(tools), choice=choice, strict=strict)
    if not chat.promises_calls:
        return None
    text = call_grammar(chat, OutputFormat(name, reasoning, in_reasoning), MARKER if name == "mistral" else None)
    return Constraint(CALLS, (text,))


def ids(text: str, name: str) -> list[int]:
    """The tokens of an output."""
    if name != "mistral":
        return list(text.encode())
    first, *rest = (list(part.encode()) for part in text.split("[TOOL_CALLS]"))
    return first + [token for part in rest for token in (MARKER, *part)]


def is_allowed(grammars: Grammars, constraint: Constraint | None, text: str, name: str) -> bool:
    """Whether `text` is a whole output."""
    assert constraint is not None
    matcher = grammars.compile(constraint).matcher()
    try:
        matcher.accept(ids(text, name))
        return bool(matcher.allowed()[EOS // 8] & 1)
    except ConstraintBroken:
        return False


def element(name: str, called: str, arguments: dict[str, Any]) -> str:
    """A call whose arguments are elements."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    if name == "glm":
        pairs = (f"<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n" for key, text in texts.items())
        return f"{called}\n{''.join(pairs)}"
    pairs = (f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in texts.items())
    return f"\n<function={called}>\n{''.join(pairs)}</function>\n"


def rendered(name: str, *calls: tuple[str, dict[str, Any]], before: str = "") -> str:
    """Calls as models of the format write them."""
    if name in XML_SYNTAXES:
        elements = "\n".join(f"<tool_call>{element(name, *call)}</tool_call>" for call in calls)
        return before + elements
    key = "parameters" if name == "llama" else "arguments"
    written = [json.dumps({"name": called, key: arguments}) for called, arguments in calls]
    match name:
        case "hermes":
            return before + "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in written)
        case "llama":
            return before + "; ".join(written)
        case _:
            return f"{before}[TOOL_CALLS] [{', '.join(written)}]"


def parsed(
    text: str, name: str, reasoning: str = "", in_reasoning: bool = False, tools: Sequence[dict[str, Any]] = TOOLS
) -> tuple[str, list[tuple[str, Any]]]:
    """The answer's text, and the calls; their arguments have to be JSON."""
    parser = OutputParser(name, reasoning, in_reasoning, argument_types(tools))
    parts = [*parser.push(text), *parser.end()]
    names = [part.name for part in parts if isinstance(part, CallBegun)]
    arguments = [
        "".join(part.text for part in parts if isinstance(part, Arguments) and part.number == number)
        for number in range(len(names))
    ]
    said = "".join(part.text for part in parts if isinstance(part, AnswerText))
    assert reasoning or not any(isinstance(part, Reasoning) for part in parts)
    return said, [(name, json.loads(text)) for name, text in zip(names, arguments, strict=True)]


@pytest.mark.parametrize("name", FORMATS)
def test_required_calls_are_derived_as_models_write_them_and_nothing_else_is(grammars: Grammars, name: str) -> None:
    required = grammar(name, REQUIRED)
    for calls in ([PARIS], [NOON], [PARIS, NOON, PARIS]):
        assert is_allowed(grammars, required, rendered(name, *calls), name)
        assert parsed(rendered(name, *calls), name) == ("", calls)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("other", {}),
        ("weather", {}),
        ("weather", {"city": "Rome"}),
        ("clock", {"x": 1}),
    ]
    for text in ("", "It rains.", *(rendered(name, call) for call in wrong), rendered(name, PARIS, before="So: ")):
        assert not is_allowed(grammars, required, text, name), text


@pytest.mark.parametrize("name", FORMATS)
def test_a_single_call_and_a_named_tool(grammars: Grammars, name: str) -> None:
    single, named = grammar(name, CallChoice(is_required=True, is_single=True)), grammar(name, CallChoice(name="clock"))
    for constraint, allowed in ((single, [PARIS, NOON]), (named, [NOON])):
        found = [call for call in (PARIS, NOON) if is_allowed(grammars, constraint, rendered(name, call), name)]
        assert found == allowed
        assert not is_allowed(grammars, constraint, rendered(name, NOON, NOON), name)


@pytest.mark.parametrize("name", FORMATS)
def test_strict_arguments_are_valid_and_the_model_decides_whether_it_calls(grammars: Grammars, name: str) -> None:
    strict = grammar(name, weather=True)
    assert strict == grammar(name, weather=True, clock=False)
    good = ("", "It rains.", "5 < 6 and a [list]", rendered(name, PARIS, NOON), rendered(name, ("clock", {"any": [1]})))
    for text in good:
        assert is_allowed(grammars, strict, text, name), text
    for call in (("weather", {"city": "Rome"}), ("other", {})):
        assert not is_allowed(grammars, strict, rendered(name, call), name)
    if name != "llama":
        text = rendered(name, PARIS, before="Let me look. ")
        assert is_allowed(grammars, strict, text, name)
        assert is_allowed(grammars, strict, text + " Well.", name)
        assert not is_allowed(grammars, grammar(name, CallChoice(is_single=True), weather=True), text + " Well.", name)


@pytest.mark.parametrize("name", FORMATS)
def test_reasoning_is_free_whatever_it_mentions(grammars: Grammars, name: str) -> None:
    thought = "Shall I <tool_call> or {?"
    ways: list[tuple[CallChoice, dict[str, Any]]] = [(REQUIRED, {}), (ANY_CHOICE, {"weather": True})]
    for choice, strict in ways:
        begun = grammar(name, choice, "think", True, **strict)
        free = grammar(name, choice, "think", **strict)
        for constraint, text, in_reasoning in (
            (begun, rendered(name, PARIS, before=f"{thought}</think>\n\n"), True),
            (free, rendered(name, PARIS, before=f"<think>{thought}</think>\n\n"), False),
            (free, rendered(name, PARIS), False),
        ):
            assert is_allowed(grammars, constraint, text, name), text
            assert parsed(text, name, "think", in_reasoning) == ("", [PARIS])
        assert not is_allowed(grammars, begun, rendered(name, ("weather", {}), before="</think>"), name)
    assert not is_allowed(grammars, grammar(name, REQUIRED, "think"), f"<think>{thought}</think>It rains.", name)


@pytest.mark.parametrize("name", FORMATS)
def test_whatever_is_drawn_consists_of_allowed_calls(grammars: Grammars, name: str) -> None:
    dice, found = random.Random(name), 0
    constraint = grammar(name, REQUIRED)
    assert constraint is not None
    for _ in range(20):
        matcher, output = grammars.compile(constraint).matcher(), list[int]()
        while EOS not in output and len(output) < 400:
            mask = matcher.allowed()
            allowed = [token for token in range(len(SPELLED)) if mask[token // 8] >> token % 8 & 1]
            output.append(dice.choice(allowed))
            matcher.accept(output[-1:])
        if output[-1] == EOS:
            text = b"".join(SPELLED[token] for token in output[:-1]).decode()
            said, calls = parsed(text, name)
            found += 1
            assert said == ""
            for called, arguments in calls:
                assert (called == "clock" and arguments == {}) or arguments["city"] in CITY["enum"]
    assert found > 10


def test_nothing_is_promised_where_nothing_is_asked_for() -> None:
    assert grammar("hermes") is None
    assert grammar("hermes", CallChoice(is_single=True), weather=False) is None


def test_arguments_of_a_required_call_need_not_be_valid_if_the_tool_is_not_strict(grammars: Grammars) -> None:
    free = grammar("hermes", REQUIRED, weather=False)
    assert is_allowed(grammars, free, rendered("hermes", ("weather", {"city": 5})), "hermes")
    assert not is_allowed(grammars, free, '<tool_call>\n{"name": "weather", "arguments": 5}\n</tool_call>', "hermes")


def test_calls_that_cannot_be_promised_are_refused_by_name(grammars: Grammars) -> None:
    with pytest.raises(InvalidRequest, match=r"prompt\.chat\.tool_choice: .*other"):
        grammar("other", REQUIRED)
    unique = {**CLOCK, "parameters": {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}}
    constraint = grammar("hermes", REQUIRED, tools=[unique])
    assert constraint is not None
    with pytest.raises(InvalidRequest, match=r"prompt\.chat\.tools: .*uniqueItems"):
        grammars.compile(constraint)


MANY = {
    "name": "plan",
    "description": "",
    "parameters": {
        "type": "object",
        "properties": {
            "note": {"type": "string", "description": "Any text."},
            "kind": {"enum": ["dry", "näss", 3, None]},
            "fixed": {"const": True},
            "days": {"type": "integer", "minimum": 1, "maximum": 20},
            "share": {"anyOf": [{"$ref": "#/$defs/share"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 2},
            "place": {"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": False},
            "either": {"anyOf": [{"type": "string"}, {"type": "boolean"}]},
            "anything": True,
        },
        "required": ["note", "kind", "fixed", "days", "share"],
        "additionalProperties": False,
        "$defs": {"share": {"enum": [1, 2.5]}, "tag": {"type": "string", "maxLength": 2}},
    },
}


LEAST: dict[str, Any] = {"note": "", "kind": "dry", "fixed": True, "days": 5, "share": None}
FULL = {
    "note": "5 < 6\n</tool_call>",
    "kind": "näss",
    "fixed": True,
    "days": 20,
    "share": 2.5,
    "tags": ["a", "</"],
    "place": {"x": -1},
    "either": False,
    "anything": '"quoted"',
}


@pytest.mark.parametrize("name", XML_SYNTAXES)
def test_bare_texts_are_allowed_where_they_are_read_as_valid_arguments(grammars: Grammars, name: str) -> None:
    constraint = grammar(name, REQUIRED, tools=[MANY])
    for arguments in (LEAST, FULL, {**LEAST, "kind": 3}, {**LEAST, "kind": None}, {**LEAST, "either": "2 words"}):
        text = rendered(name, ("plan", arguments))
        assert is_allowed(grammars, constraint, text, name), text
        assert parsed(text, name, tools=[MANY]) == ("", [("plan", arguments)])
    wrong: list[dict[str, Any]] = [
        {"kind": "wet"},
        {"fixed": False},
        {"days": 21},
        {"days": "five"},
        {"share": 2},
        {"tags": ["abc"]},
        {"place": {"y": 1}},
        {"other": 1},
    ]
    for change in wrong:
        assert not is_allowed(grammars, constraint, rendered(name, ("plan", {**LEAST, **change})), name), change
    assert not is_allowed(grammars, constraint, rendered(name, ("plan", {"note": ""})), name)
    note = {"qwen_coder": "a\n<parameter=days>\nb", "glm": "a<arg_key>days</arg_key><arg_value>b"}[name]
    assert not is_allowed(grammars, constraint, rendered(name, ("plan", {**LEAST, "note": note})), name), "read as two"


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"anyOf": [{}]}, "anyOf"),
        ({"properties": {"a": {"type": "string", "maxLength": 3}}}, "calls of f.a .*maxLength"),
        ({"properties": {"a": {"anyOf": [{"type": "string", "pattern": "x"}]}}}, "pattern"),
        ({"properties": {"a": {"anyOf": ["x"]}}}, "'x'"),
        ({"properties": {"a": {"enum": ["1", 1]}}}, "told apart"),
        ({"properties": {"a": {"enum": ["</parameter></arg_value>"]}}}, "told apart"),
        ({"properties": {"a": {"enum": []}}}, "told apart"),
        ({"properties": {"a": False}}, "not"),
        ({"properties": {"a b": {}}}, "a space"),
        ({"properties": {}, "required": ["a"]}, "required"),
        ({"properties": 5}, "required"),
    ],
)
@pytest.mark.parametrize("name", XML_SYNTAXES)
def test_bare_texts_that_cannot_be_promised_are_refused(name: str, parameters: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"prompt\.chat\.tools: .*{reason}"):
        grammar(name, REQUIRED, tools=[{"name": "f", "description": "", "parameters": parameters}])
    free = grammar(name, REQUIRED, tools=[{"name": "f", "description": "", "parameters": parameters}], f=False)
    assert free is not None, "they need not be valid if the tool is not strict"
