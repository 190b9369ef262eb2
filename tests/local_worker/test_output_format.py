"""The format of calls and of reasoning, as chat templates of the shapes that models ship show it."""

from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from fairlead.errors import InvalidRequest
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
XML = HERMES.replace('{"name": "{{ call.function.name }}", "arguments": ', "<function={{ call.function.name }}>")
THINKING = HERMES.replace("<assistant>{% endif %}", "<assistant><think>\n{% endif %}") + "{# </think> #}"


def tokenizer(template: str) -> HuggingFaceTokenizer:
    """A tokenizer whose tokens are characters, and some special ones."""
    characters = [chr(code) for code in range(128)]
    backend = Backend(models.BPE({character: index for index, character in enumerate(characters)}, []))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(["<end>", "[TOOL_CALLS]"])
    backend.add_tokens([AddedToken("<tool_call>", normalized=False)])
    made: Any = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
    made.chat_template = template
    return HuggingFaceTokenizer(made, (128,))


@pytest.mark.parametrize(
    ("template", "answer"),
    [
        (HERMES, OutputFormat("hermes")),
        (LLAMA, OutputFormat("llama")),
        (MISTRAL, OutputFormat("mistral")),
        (THINKING, OutputFormat("hermes", "think", in_reasoning=True)),
    ],
)
def test_a_model_writes_calls_as_its_template_does(template: str, answer: OutputFormat) -> None:
    made = tokenizer(template)
    assert made.encode_chat(ASKED).output_format == answer
    plain = made.encode_chat(Chat(ASKED.messages)).output_format
    assert plain == answer._replace(tool_calls=""), "without tools no calls are looked for"


@pytest.mark.parametrize("template", [XML, "{% for m in messages %}{{ m.content }}{% endfor %}"])
@pytest.mark.parametrize("chat", [ASKED, ANSWERED, Chat(ANSWERED.messages)])
def test_tools_are_refused_where_the_format_of_calls_is_unknown(template: str, chat: Chat) -> None:
    with pytest.raises(InvalidRequest, match="hermes, llama, mistral") as caught:
        tokenizer(template).encode_chat(chat)
    assert caught.value.field == "prompt.chat.tools"


def test_the_template_is_given_tools_calls_and_results() -> None:
    made = tokenizer(HERMES)
    text = made.decode(made.encode_chat(ANSWERED).ids)
    assert '"name": "weather"' in text
    assert '<assistant><tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call><end>' in text
    assert text.endswith("<tool>rain<end><assistant>")
    named = tokenizer("{{ messages[-1].name }} {{ messages[-1].tool_call_id }}" + "{#" + HERMES + "#}" + HERMES)
    assert named.decode(named.encode_chat(ANSWERED).ids).startswith("weather 123456789")


def test_the_token_that_begins_mistrals_calls_is_text_and_other_special_ones_are_not() -> None:
    made = tokenizer(MISTRAL)
    decoder = made.decoder()
    ids = made.encode('[TOOL_CALLS] [{"name"<end>')
    assert "".join(map(decoder.push, ids)) == '[TOOL_CALLS] [{"name"'


def test_the_fake_engine_writes_calls_as_hermes() -> None:
    encoded = ByteTokenizer().encode_chat(ANSWERED)
    assert encoded.output_format == OutputFormat("hermes")
    text = bytes(encoded.ids).decode()
    assert text.startswith('tool: {"name": "weather"')
    assert 'assistant: <tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>\n' in text
    assert "tool 123456789: rain\n" in text
