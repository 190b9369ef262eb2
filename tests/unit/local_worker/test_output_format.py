"""The format of calls and of reasoning, as chat templates of the shapes that models ship show it."""

import json
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from local_worker.argument_types import argument_types
from local_worker.prompt import Chat, ChatMessage, EarlierCall, OutputFormat
from local_worker.tokenizer import ByteTokenizer, HuggingFaceTokenizer

TOOL = {"name": "weather", "description": "Tells it.", "parameters": {"type": "object", "properties": {"city": {}}}}
CALL = EarlierCall("123456789", "weather", {"city": "Paris"})
ASKED = Chat((ChatMessage("user", "hi"),), tools=(TOOL,))
ANSWERED = Chat(
    (
        ChatMessage("user", "hi"),
        ChatMessage("assistant", "", (CALL,)),
        ChatMessage("tool", "rain", tool_call_id=CALL.id),
    ),
    tools=(TOOL,),
)
HERMES = """
{%- if tools %}<system>{% for tool in tools %}{{ tool | tojson }}{% endfor %}
{"name": <name>, "arguments": <object>} in <tool_call></tool_call><end>{% endif %}
{%- for m in messages %}<{{ m.role }}>{{ m.content }}
{%- for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<end>{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}"""
LLAMA = """
{%- for m in messages %}<{{ m.role }}>
{%- if m.tool_calls %}{{ '{"name": "' + m.tool_calls[0].function.name + '", "parameters": ' }}
{{- m.tool_calls[0].function.arguments | tojson }}{{ "}" }}{% else %}{{ m.content }}{% endif %}<end>{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}"""
MISTRAL = """
{%- for m in messages %}{% if m.role == "user" %}[INST] {{ m.content }}[/INST]
{%- elif m.tool_calls %}[TOOL_CALLS] [{% for call in m.tool_calls %}
{%- if call.id|length != 9 %}{{ raise_exception("ids have nine characters") }}{% endif %}
{{- {"name": call.function.name, "arguments": call.function.arguments, "id": call.id} | tojson }}
{%- if not loop.last %}, {% endif %}{% endfor %}]<end>{% endif %}{% endfor %}"""
NAMED = """
{%- for m in messages %}{% if m.role == "user" %}[INST]{{ m.content }}[/INST]{% else %}
{%- for call in m.tool_calls or [] %}
{{- "[TOOL_CALLS]" + call.function.name + "[ARGS]" + call.function.arguments | tojson }}{% endfor %}<end>{% endif %}
{%- endfor %}"""
CODER = HERMES.replace(
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}',
    "<function={{ call.function.name }}>{% for name, value in call.function.arguments | items %}\n"
    "<parameter={{ name }}>\n{{ value }}\n</parameter>{% endfor %}\n</function>",
)
GLM = HERMES.replace(
    '\n{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}',
    "{{ call.function.name }}\n{% for name, value in call.function.arguments | items %}<arg_key>{{ name }}</arg_key>\n"
    "<arg_value>{{ value }}</arg_value>{% endfor %}",
)
TYPES = '{"weather": {}}'
UNKNOWN = HERMES.replace('{"name": "{{ call.function.name }}", "arguments": ', "<call={{ call.function.name }}>")
THINKING = HERMES.replace("<assistant>{% endif %}", "<assistant><think>\n{% endif %}") + "{# </think> #}"


def tokenizer(template: str, shipped: object = None) -> HuggingFaceTokenizer:
    """A tokenizer whose tokens are characters, and some special ones; `shipped` is its response template."""
    characters = [chr(code) for code in range(128)]
    backend = Backend(models.BPE({character: index for index, character in enumerate(characters)}, []))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(["<end>", "[TOOL_CALLS]", "[ARGS]"])
    backend.add_tokens([AddedToken("<tool_call>", normalized=False)])
    backend.add_tokens(sorted({letter for letter in template if not letter.isascii()}))
    made: Any = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
    made.chat_template = template
    made.response_template = shipped
    return HuggingFaceTokenizer(made, (128,))


@pytest.mark.parametrize(
    ("template", "answer"),
    [
        (HERMES, OutputFormat("hermes", argument_types=TYPES)),
        (LLAMA, OutputFormat("llama", argument_types=TYPES)),
        (MISTRAL, OutputFormat("mistral", argument_types=TYPES)),
        (NAMED, OutputFormat("mistral", argument_types=TYPES)),
        (CODER, OutputFormat("qwen_coder", argument_types=TYPES)),
        (GLM, OutputFormat("glm", argument_types=TYPES)),
        (THINKING, OutputFormat("hermes", "think", in_reasoning=True, argument_types=TYPES)),
    ],
)
def test_a_model_writes_calls_as_its_template_does(template: str, answer: OutputFormat) -> None:
    made = tokenizer(template)
    assert made.encode_chat(ASKED).output_format == answer
    plain = made.encode_chat(Chat(ASKED.messages)).output_format
    assert plain == answer._replace(tool_calls="", argument_types=""), "without tools no calls are looked for"


@pytest.mark.parametrize("template", [UNKNOWN, "{% for m in messages %}{{ m.content }}{% endfor %}"])
@pytest.mark.parametrize("chat", [ASKED, ANSWERED, Chat(ANSWERED.messages)])
def test_calls_are_hermes_where_the_format_of_the_template_is_unknown(template: str, chat: Chat) -> None:
    assert tokenizer(template).encode_chat(chat).output_format.tool_calls == ("hermes" if chat.tools else "")


def test_the_template_is_given_tools_calls_and_results() -> None:
    made = tokenizer(HERMES)
    text = made.decode(made.encode_chat(ANSWERED).ids)
    assert '"name": "weather"' in text
    assert '<assistant><tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call><end>' in text
    assert text.endswith("<tool>rain<end><assistant>")
    named = tokenizer("{{ messages[-1].name }} {{ messages[-1].tool_call_id }}" + "{#" + HERMES + "#}" + HERMES)
    assert named.decode(named.encode_chat(ANSWERED).ids).startswith("weather 123456789")


def test_the_tokens_that_mark_mistrals_calls_are_text_and_other_special_ones_are_not() -> None:
    made = tokenizer(MISTRAL)
    decoder = made.decoder()
    ids = made.encode('[TOOL_CALLS] [{"name"[TOOL_CALLS]a[ARGS]{<end>')
    assert "".join(map(decoder.push, ids)) == '[TOOL_CALLS] [{"name"[TOOL_CALLS]a[ARGS]{'


def test_the_fake_engine_writes_calls_as_hermes() -> None:
    encoded = ByteTokenizer().encode_chat(ANSWERED)
    assert encoded.output_format == OutputFormat("hermes", argument_types=TYPES)
    text = bytes(encoded.ids).decode()
    assert text.startswith('tool: {"name": "weather"')
    assert 'assistant: <tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>\n' in text
    assert "tool 123456789: rain\n" in text


SHIPPED = {
    "start_anchor": "<assistant>",
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>"},
        "tool_calls": {"open_pattern": r"\[(?:TOOL_CALLS|NONE)\]|<end>", "close": "!", "content": "json"},
        "content": {},
    },
}


@pytest.mark.parametrize(("template", "in_reasoning"), [(HERMES, False), (THINKING, True), (UNKNOWN, False)])
def test_a_response_template_that_a_tokenizer_ships_decides(template: str, in_reasoning: bool) -> None:
    made = tokenizer(template, SHIPPED)
    for chat, types in ((ASKED, TYPES), (Chat(ASKED.messages), "")):
        answer = made.encode_chat(chat).output_format
        assert json.loads(answer.response_template) == SHIPPED
        assert (answer.in_reasoning, answer.argument_types) == (in_reasoning, types)


def test_special_tokens_of_a_response_template_are_text_unless_they_end_the_output() -> None:
    decoder = tokenizer(HERMES, SHIPPED).decoder()
    assert "".join(map(decoder.push, [*b"ok", 129, 128])) == "ok[TOOL_CALLS]"


@pytest.mark.parametrize(
    "wrong", [{"fields": {}}, {**SHIPPED, "fields": {"content": {"open_pattern": "a\\b"}}}, 7, b"x"]
)
def test_a_response_template_that_cannot_be_followed_is_left_out(wrong: object) -> None:
    answer = tokenizer(HERMES, wrong).encode_chat(ASKED).output_format
    assert answer == OutputFormat("hermes", argument_types=TYPES)


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "integer"}, ["integer"]),
        ({"type": ["string", "null"]}, ["string", "null"]),
        ({"anyOf": [{"$ref": "#/$defs/day"}, {"type": "null"}]}, ["null", "integer"]),
        ({"enum": [1, "a", None, 2.5, True]}, ["integer", "string", "null", "number", "boolean"]),
        ({"const": [1]}, ["array"]),
        ({"const": None}, ["null"]),
        ({"type": "number", "nullable": True}, ["number", "null"]),
        ({"allOf": [{"type": "object"}], "oneOf": []}, ["object"]),
        ({"$ref": "#/$defs/self"}, []),
        ({"$ref": "elsewhere"}, []),
        ({"$ref": "#/a/b"}, []),
        ({"type": 5, "anyOf": 7, "enum": 1, "$ref": 3}, []),
        (True, []),
        ({}, []),
    ],
)
def test_the_types_of_an_argument(schema: object, types: list[str]) -> None:
    known = {"day": {"type": "integer"}, "self": {"$ref": "#/$defs/self"}}
    tool = {"name": "f", "parameters": {"properties": {"a": schema}, "$defs": known}}
    assert argument_types([tool]) == {"f": {"a": types} if types else {}}


@pytest.mark.parametrize("parameters", [{}, {"properties": 5}])
def test_a_tool_without_properties_has_no_types(parameters: dict[str, Any]) -> None:
    assert argument_types([{"name": "f", "parameters": parameters}]) == {"f": {}}
