"""Tokens become text one by one: the pieces make up the whole, and no piece holds half a character."""

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from fairlead.errors import InvalidRequest
from gateway.validation import RESERVED_VARIABLES
from local_worker.hugging_face_decoder import REPLACEMENT, HuggingFaceDecoder
from local_worker.prompt import Chat, ChatMessage
from local_worker.tokenizer import (
    ByteTokenizer,
    DecodingTokenizer,
    HuggingFaceTokenizer,
)

TRAINING = ["the quick brown fox jumps over the lazy dog", "eins zwei drei", "día, çà, ö"] * 3


def byte_level() -> HuggingFaceTokenizer:
    """Byte-level BPE, made on the spot: characters beyond ASCII take several tokens."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=["<end>"])
    backend.train_from_iterator(TRAINING, trainer)
    return HuggingFaceTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>"), (0,))


TOKENIZERS: dict[str, DecodingTokenizer] = {"byte-level BPE": byte_level(), "bytes": ByteTokenizer()}
by_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)


@by_tokenizer
@given(text=st.text(min_size=1).filter(lambda text: REPLACEMENT not in text))
def test_pieces_make_up_the_text_and_hold_whole_characters(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    decoder = tokenizer.decoder()
    pieces = [decoder.push(token) for token in tokenizer.encode(text)]
    assert REPLACEMENT not in "".join(pieces)
    assert "".join(pieces) + decoder.flush() == text


@by_tokenizer
@given(text=st.text(min_size=1))
def test_tokens_are_decoded_to_the_text_that_they_are_of(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    assert tokenizer.decode(tokenizer.encode(text, with_special_tokens=False)) == text


@by_tokenizer
@given(text=st.text(min_size=1))
def test_the_bytes_of_tokens_make_up_the_text(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    decoder = tokenizer.decoder()
    assert b"".join(map(decoder.token_bytes, tokenizer.encode(text))) == text.encode()


def test_special_tokens_stand_for_their_names_and_ids_beyond_the_vocabulary_for_nothing() -> None:
    decoder = TOKENIZERS["byte-level BPE"].decoder()
    assert decoder.token_bytes(0) == b"<end>"
    assert decoder.token_bytes(100_000) == b""
    assert ByteTokenizer().decoder().token_bytes(256) == b""


def test_entries_of_sentencepiece_stand_for_spaces_and_bytes() -> None:
    entries = ["<s>", "\u2581tide", "<0xE2>", "s"]
    backend = Backend(models.WordLevel({entry: number for number, entry in enumerate(entries)}, unk_token="<s>"))
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    decoder = HuggingFaceTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>"), (0,)).decoder()
    assert [decoder.token_bytes(token) for token in range(4)] == [b"<s>", b" tide", b"\xe2", b"s"]


def test_special_tokens_are_added_unless_they_are_not_wanted() -> None:
    backend = Backend(models.WordLevel({"<s>": 0, "tide": 1}, unk_token="<s>"))
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = HuggingFaceTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>"), (0,))
    assert tokenizer.encode("tide") == [0, 1]
    assert tokenizer.encode("tide", with_special_tokens=False) == [1]
    assert tokenizer.decode([0, 1]) == "<s> tide"


BYTE_LEVEL = byte_level()


@given(ids=st.lists(st.integers(0, 299), min_size=1))
def test_the_backend_decodes_as_transformers_does(ids: list[int]) -> None:
    """The ids may be of special tokens and of parts of characters."""
    assert BYTE_LEVEL.decode(ids) == BYTE_LEVEL._tokenizer.decode(ids)


class Loud(PreTrainedTokenizerFast):
    """A model's own tokenizer, which changes what the backend decodes."""

    def _decode(self, *args: Any, **options: Any) -> str:
        return str(super()._decode(*args, **options)).upper()


@pytest.mark.parametrize(("kind", "cleans_up", "text"), [(Loud, False, "GO ."), (PreTrainedTokenizerFast, True, "go.")])
def test_text_that_transformers_changes_is_not_the_backends(kind: Any, cleans_up: bool, text: str) -> None:
    backend = Backend(models.WordLevel({"go": 0, ".": 1}, unk_token="."))
    tokenizer = kind(tokenizer_object=backend, clean_up_tokenization_spaces=cleans_up)
    assert HuggingFaceTokenizer(tokenizer, (0,)).decode([0, 1]) == text


@by_tokenizer
def test_a_character_of_several_tokens_comes_with_its_last(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    tokens = tokenizer.encode("🎉")
    assert len(tokens) == 4
    decoder = tokenizer.decoder()
    assert [decoder.push(token) for token in tokens] == ["", "", "", "🎉"]


@by_tokenizer
def test_half_a_character_at_the_end_is_left_out(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    decoder = tokenizer.decoder()
    pieces = [decoder.push(token) for token in tokenizer.encode("a🎉")[:-1]]
    assert "".join(pieces) == "a"
    assert decoder.flush() == ""


@by_tokenizer
def test_a_replacement_character_that_was_written_stays(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    decoder = tokenizer.decoder()
    text = f"a{REPLACEMENT}"
    assert "".join(map(decoder.push, tokenizer.encode(text))) + decoder.flush() == text
    decoder = tokenizer.decoder()
    tokens = [*tokenizer.encode(text), *tokenizer.encode("🎉")[:-1]]
    assert "".join(map(decoder.push, tokens)) + decoder.flush() == text


@by_tokenizer
def test_half_a_character_that_is_not_continued_does_not_hold_up_what_follows(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    decoder = tokenizer.decoder()
    broken = [*tokenizer.encode("🎉")[:2], *tokenizer.encode("go on")]
    text = "".join(decoder.push(token) for token in broken)
    assert text.strip(REPLACEMENT) == "go on"
    assert REPLACEMENT in text


@pytest.mark.parametrize(
    ("template", "leads"),
    [
        ("{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}", True),
        ("{% if messages[-1].role != 'user' %}{{ raise_exception('no user') }}{% endif %}{{ messages }}", False),
    ],
)
def test_a_system_message_alone_is_the_beginning_of_the_chat_or_nothing(template: str, leads: bool) -> None:
    tokenizer = byte_level()
    tokenizer._tokenizer.chat_template = template
    chat = Chat((ChatMessage("system", "the quick"), ChatMessage("system", "brown fox"), ChatMessage("user", "jumps")))
    ids, system = tokenizer.encode_chat(chat).ids, tokenizer.encode_system("the quick")
    assert system == (ids[: len(system)] if leads else [])
    assert bool(system) == leads


TEMPLATE = """
{%- for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}
{%- if add_generation_prompt %}<assistant>{% if not thinking %}!{% endif %}{% endif %}
{%- if steps is defined %}{{ steps + 1 }}{% endif %}"""
BEGUN = (ChatMessage("user", "the quick"), ChatMessage("assistant", "brown"))


@pytest.mark.parametrize(
    ("chat", "text"),
    [
        (Chat(BEGUN[:1]), "<user>the quick<end><assistant>!"),
        (Chat(BEGUN[:1], variables={"thinking": True}), "<user>the quick<end><assistant>"),
        (Chat(BEGUN[:1], add_generation_prompt=False), "<user>the quick<end>"),
        (Chat(BEGUN[:1], add_generation_prompt=False, variables={"steps": 2}), "<user>the quick<end>3"),
        (
            Chat(BEGUN, add_generation_prompt=False, continue_final_message=True),
            "<user>the quick<end><assistant>brown",
        ),
    ],
)
def test_a_chat_is_rendered_as_it_says(chat: Chat, text: str) -> None:
    tokenizer = byte_level()
    tokenizer._tokenizer.chat_template = TEMPLATE
    assert tokenizer.decode(tokenizer.encode_chat(chat).ids) == text


@pytest.mark.parametrize(
    "chat",
    [
        Chat(BEGUN, continue_final_message=True),  # and an answer is begun, too
        Chat(BEGUN, variables={"steps": "two"}),
        Chat(BEGUN, variables={"chat_template": 1}),
        Chat((ChatMessage("user", "x" * 100_000), ChatMessage("user", "")), False, True),
    ],
)
def test_a_chat_that_a_template_rejects_is_refused_with_a_short_reason(chat: Chat) -> None:
    tokenizer = byte_level()
    tokenizer._tokenizer.chat_template = TEMPLATE + "{{ raise_exception(messages) if messages[0].content|length > 99 }}"
    with pytest.raises(InvalidRequest) as caught:
        tokenizer.encode_chat(chat)
    assert caught.value.field == "prompt.chat"
    assert len(caught.value.message) < 400


def test_callers_cannot_give_what_the_renderer_or_the_tokenizer_gives() -> None:
    tokenizer = byte_level()._tokenizer
    taken = {*inspect.signature(tokenizer.apply_chat_template).parameters, *tokenizer.SPECIAL_TOKENS_ATTRIBUTES}
    taken |= set(inspect.signature(render_jinja_template).parameters)
    assert taken - {"kwargs"} <= RESERVED_VARIABLES


@by_tokenizer
@given(st.text(min_size=1, max_size=40))
def test_no_token_stands_for_more_characters_than_the_longest(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    assert len(text) <= len(tokenizer.encode(text)) * tokenizer.longest_token


@pytest.mark.parametrize("token", ["special", "half"])
def test_the_decoding_window_stays_short_for_an_output_without_text(token: str) -> None:
    """The window that is decoded at each token stays short, whatever a model is made to say."""
    tokenizer = byte_level()
    repeated = {"special": 0, "half": tokenizer.encode("🎉")[0]}[token]
    decoder = tokenizer.decoder()
    assert isinstance(decoder, HuggingFaceDecoder)
    said = "".join(decoder.push(repeated) for _ in range(300))
    assert set(said) <= {REPLACEMENT}
    assert len(decoder._tokens) - decoder._start < 64
    assert (said + decoder.push(tokenizer.encode("x")[0])).endswith("x")


def test_tokens_of_several_bytes_make_shorter_prompts_of_the_same_text() -> None:
    tokenizer = ByteTokenizer(prompt_bytes=4)
    assert tokenizer.encode("abcdefghi") == list(b"aei")
    encoded = tokenizer.encode_chat(Chat((ChatMessage("system", "be brief"), ChatMessage("user", "hello"))))
    assert len(encoded.ids) == -(-len("system: be brief\nuser: hello\nassistant: ") // 4)
    assert encoded.system_tokens <= len(encoded.ids)
    assert tokenizer.decoder().push(97) == "a", "a token of the output is a byte"
