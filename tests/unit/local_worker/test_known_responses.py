"""Models of families whose response template is known: what their chat templates render, and what they answer."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fairlead.completion import Chunk
from fairlead.parsed_output import ParsedOutput
from fairlead.v1 import common_pb2
from local_worker.prompt import CallChoice, Chat, ChatMessage, EarlierCall, OutputFormat
from tests.unit.local_worker.test_output_format import ASKED, CALL, TYPES, tokenizer

GPT_OSS = """
{%- for tool in tools or [] %}<|start|>developer<|message|>{{ tool | tojson }}<|end|>{% endfor %}
{%- for m in messages %}{% if m.tool_calls %}{% set call = m.tool_calls[0].function %}
{{- "<|start|>assistant to=functions." + call.name + "<|channel|>commentary json<|message|>" }}
{{- call.arguments | tojson }}<|call|>
{%- elif m.role == "assistant" %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>
{%- else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""
DEEPSEEK = """
{%- for tool in tools or [] %}{{ tool | tojson }}{% endfor %}
{%- for m in messages %}{% if m.tool_calls %}<｜Assistant｜><｜tool▁calls▁begin｜>{% for call in m.tool_calls %}
{{- "<｜tool▁call▁begin｜>" + call.function.name + "<｜tool▁sep｜>" }}{{ call.function.arguments | tojson }}
{{- "<｜tool▁call▁end｜>" }}{% endfor %}<｜tool▁calls▁end｜><｜end▁of▁sentence｜>
{%- else %}<｜User｜>{{ m.content }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}<｜Assistant｜>{% if thinking %}<think>{% else %}</think>{% endif %}{% endif %}"""
KIMI = """
{%- for tool in tools or [] %}{{ tool | tojson }}{% endfor %}
{%- for m in messages %}<|im_{{ m.role }}|>{% if m.tool_calls %}<|tool_calls_section_begin|>
{%- for call in m.tool_calls %}<|tool_call_begin|>{{ call.id }}
{{- "<|tool_call_argument_begin|>" }}{{ call.function.arguments | tojson }}
{{- "<|tool_call_end|>" }}{% endfor %}<|tool_calls_section_end|>
{%- else %}{% if m.role == "tool" %}## Return of {{ m.tool_call_id }}\n{% endif %}{{ m.content }}{% endif %}<|im_end|>
{%- endfor %}{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}"""
ARGUMENTS = '{"city": "Paris"}'
PARIS = ("weather", ARGUMENTS)
FENCED = f"function<｜tool▁sep｜>weather\n```json\n{ARGUMENTS}\n```"
WRITTEN = [  # with the thought, the text and the calls
    (GPT_OSS, "<|channel|>final<|message|>It rains.", "", "It rains.", []),
    (
        GPT_OSS,
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It rains.",
        "Hm.",
        "It rains.",
        [],
    ),
    (
        GPT_OSS,
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        f"<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{ARGUMENTS}",
        "Hm.",
        "I look.",
        [PARIS],
    ),
    (GPT_OSS, f" to=functions.weather<|channel|>commentary json<|message|>{ARGUMENTS}<|call|>", "", "", [PARIS]),
    (GPT_OSS, "and it is a final message that is continued", "", "and it is a final message that is continued", []),
    (
        DEEPSEEK,
        f"I look.\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜>\n"
        f"<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "",
        "I look.",
        [PARIS, PARIS],
    ),
    (
        DEEPSEEK,
        f"<think>Hm.</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{FENCED}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "Hm.",
        "",
        [PARIS],
    ),
    (
        KIMI,
        "<think>Hm.</think>I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
        f"<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|><|tool_call_begin|>functions.weather:1"
        f"<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>",
        "Hm.",
        "I look.",
        [PARIS, PARIS],
    ),
]


def answer_format(template: str, chat: Chat) -> OutputFormat:
    return tokenizer(template).encode_chat(chat).output_format


def read(known: OutputFormat, pieces: Sequence[str]) -> tuple[str, str, list[tuple[str, str]]]:
    """The thought, the text and the calls of an output that arrives in `pieces`."""
    output = ParsedOutput("r", common_pb2.OutputFormat(**known._asdict()))
    for piece in pieces:
        output.add(Chunk(piece, ()))
    output.end()
    return output.reasoning, output.text, [(call.name, call.arguments) for call in output.tool_calls]


@pytest.mark.parametrize(("template", "written", "thought", "text", "calls"), WRITTEN)
def test_an_output_is_read_as_the_family_writes_it(
    template: str, written: str, thought: str, text: str, calls: list[tuple[str, str]]
) -> None:
    known = answer_format(template, ASKED)
    assert known.argument_types == TYPES
    assert read(known, [written]) == read(known, [*written]) == (thought, text, calls)


@pytest.mark.parametrize("template", [GPT_OSS, DEEPSEEK, KIMI])
def test_a_call_is_read_as_the_template_writes_earlier_ones(template: str) -> None:
    made = tokenizer(template)
    called = Chat((*ASKED.messages, ChatMessage("assistant", "", (CALL,))), add_generation_prompt=False)
    written = made.decode(made.encode_chat(called).ids)
    assert read(made.encode_chat(ASKED).output_format, [written])[2] == [PARIS]


def test_ids_that_stand_for_names_have_them() -> None:
    calls = [EarlierCall(f"chat-{number}", name, {}) for number, name in enumerate(("f", "g", "f"))]
    chat = Chat(
        (
            ChatMessage("user", "hi"),
            ChatMessage("assistant", "", tuple(calls[:2])),
            ChatMessage("tool", "one", tool_call_id="chat-0"),
            ChatMessage("tool", "two", tool_call_id="chat-1"),
            ChatMessage("assistant", "", (calls[2],)),
            ChatMessage("tool", "three", tool_call_id="chat-2"),
            ChatMessage("tool", "lost", tool_call_id="chat-9"),
        )
    )
    made = tokenizer(KIMI)
    text = made.decode(made.encode_chat(chat).ids)
    ids = [f"functions.{name}:{number}" for number, name in enumerate("fgf")]
    assert [text.count(f"<|tool_call_begin|>{each}<") for each in ids] == [1, 1, 1]
    assert [text.count(f"## Return of {each}\n") for each in (*ids, "chat-9")] == [1, 1, 1, 1]


@pytest.mark.parametrize("template", [GPT_OSS, DEEPSEEK, KIMI])
def test_promised_calls_are_written_as_hermes_which_has_a_grammar(template: str) -> None:
    """A response template has none. Strict tools, which some programs always send, are no reason for a refusal."""
    for chat in (replace(ASKED, choice=CallChoice(is_required=True)), replace(ASKED, strict={"weather": True})):
        encoded = tokenizer(template).encode_chat(chat)
        assert (encoded.output_format.tool_calls, encoded.output_format.response_template) == ("hermes", "")
        assert "<tool_call>" in encoded.call_grammar


def test_the_tools_are_described_where_the_template_of_the_family_offers_none() -> None:
    """Such as DeepSeek R1's, and those of what was distilled from it."""
    without = DEEPSEEK.partition("{% endfor %}")[2]
    assert answer_format(without, ASKED).tool_calls == "hermes"
