"""Tokenizers, and incremental decoders for outputs."""

import codecs
import json
import logging
import threading
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from fairlead.errors import InvalidRequest
from fairlead.output import mistral
from fairlead.output.response_template import ResponseTemplate
from local_worker.call_grammar import call_grammar
from local_worker.chat_renderer import ChatRenderer
from local_worker.chat_template import ChatTemplate, template_variables
from local_worker.core.output_text import Decoder
from local_worker.hugging_face_decoder import HuggingFaceDecoder, decode_of
from local_worker.output_format import (
    LAST_TOKENS,
    format_of_reasoning,
    output_format,
    response_template,
)
from local_worker.prompt import Chat, ChatMessage, OutputFormat, tools_of, turns_of
from local_worker.token_bytes import TokenBytes
from local_worker.vocabulary import Vocabulary

log = logging.getLogger(__name__)
Rendered = TypeVar("Rendered")
LONGEST_REASON = 300  # characters of what a chat template complains of
KEPT_TEXTS = 65_536  # tokens whose texts are kept, at most: about 10 MB


@dataclass(frozen=True, slots=True)
class EncodedChat:
    """The token ids of a chat, of which `system_tokens` belong to system messages, and the format of its answer.

    `call_grammar` is what the answer has to be, empty if that is anything. `granted` are the names of the chat's wishes
    that the template was given.
    """

    ids: list[int]
    system_tokens: int
    output_format: OutputFormat
    call_grammar: str = ""
    granted: tuple[str, ...] = ()


class Tokenizer(Protocol):
    """The tokenizer of a model, which several threads may call at once."""

    longest_token: int  # largest number of characters that one token stands for

    def encode(self, text: str, with_special_tokens: bool = True) -> list[int]:
        """Return the token ids of `text`; raise InvalidRequest if there are none.

        Special tokens are those that the model expects before or after a text, such as the beginning of a sequence.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens by their names; bytes that are no text become U+FFFD."""

    def encode_chat(self, chat: Chat) -> EncodedChat:
        """Encode a chat with the model's chat template; raise InvalidRequest if the template rejects it."""

    def encode_system(self, content: str) -> list[int]:
        """Return the ids of a chat that is only this system message; empty if the template rejects such a chat."""


class DecodingTokenizer(Tokenizer, Protocol):
    """A tokenizer in this process, which also decodes outputs as they are generated."""

    eos_token_ids: tuple[int, ...]

    def decoder(self) -> Decoder:
        """Return a new decoder for one output."""

    def vocabulary(self) -> Vocabulary:
        """Return the tokens as llguidance reads them; raise ValueError if it cannot. It takes up to a second."""


class ByteTokenizer:
    """The tokenizer of the fake engine, whose tokens are bytes.

    Its chat template writes a line for each message with its calls, as Hermes has them, and before them one for each
    tool and after them one for each variable, as JSON. With `prompt_bytes` above
    1 a prompt's token stands for that many bytes and is the first of them, so that prompts have as many tokens as a
    model's tokenizer would make of them. See Tokenizer and DecodingTokenizer.
    """

    vocab_size = 257
    eos_token_ids: tuple[int, ...] = (256,)

    def __init__(self, prompt_bytes: int = 1) -> None:
        self.longest_token = prompt_bytes

    def encode(self, text: str, with_special_tokens: bool = True) -> list[int]:
        """See Tokenizer; there are no special tokens around a text."""
        if not text:
            raise InvalidRequest("must hold at least 1 token, got 0", "prompt.text")
        return self._ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        """See Tokenizer; the token that ends a sequence has no name."""
        return bytes(token for token in ids if token < 256).decode(errors="replace")

    def encode_chat(self, chat: Chat) -> EncodedChat:
        if not chat.messages:
            raise InvalidRequest("must hold at least 1 message, got 0", "prompt.chat.messages")
        lines, system = [f"tool: {json.dumps(tool)}\n" for tool in chat.tools], 0
        for message in chat.messages:
            lines.append(_line(message))
            system += len(self._ids(lines[-1])) if message.role == "system" else 0
        variables = [f"{name}: {json.dumps(value)}\n" for name, value in chat.variables.items()]
        if chat.continue_final_message:
            lines = [*lines[:-1], *variables, lines[-1].removesuffix("\n")]
        else:
            lines += [*variables, "assistant: " if chat.add_generation_prompt else ""]
        text = "".join(lines)
        answer = output_format(chat, "hermes", "", text)
        grammar = call_grammar(chat, answer) if chat.promises_calls else ""
        return EncodedChat(self._ids(text), system, answer, grammar)

    def encode_system(self, content: str) -> list[int]:
        return self._ids(f"system: {content}\n")

    def decoder(self) -> Decoder:
        return ByteDecoder()

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.eos_token_ids, [*(bytes([byte]) for byte in range(256)), b"<eos>"])

    def _ids(self, text: str) -> list[int]:
        return list(text.encode()[:: self.longest_token])


def _line(message: ChatMessage) -> str:
    calls = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    written = "".join([f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls])
    name = f"{message.role} {message.tool_call_id}" if message.tool_call_id else message.role
    return f"{name}: {message.content}{written}\n"


class HuggingFaceTokenizer:
    """The tokenizer from a model's folder, as transformers loads it. See Tokenizer and DecodingTokenizer."""

    def __init__(self, tokenizer: Any, eos_token_ids: tuple[int, ...]) -> None:
        self._tokenizer = tokenizer
        self._encoding = threading.Lock()  # encoding sets options of the shared tokenizer
        self.eos_token_ids = eos_token_ids
        # Measured on the vocabulary's entries, which are never shorter than their text.
        self.longest_token = max(map(len, tokenizer.get_vocab()))
        self._token_bytes = TokenBytes(tokenizer)
        self._decode = decode_of(tokenizer)
        self._token_text = lru_cache(KEPT_TEXTS)(lambda token: self._decode((token,)))
        shipped = getattr(tokenizer, "response_template", None)
        self._response_template = response_template(shipped, str(tokenizer.chat_template), self._knows("tools"))
        self._renderer = ChatRenderer(tokenizer, eos_token_ids)
        self._template = ChatTemplate(
            encode=lambda chat: self._rendered(chat, self._renderer.ids),
            text=lambda chat: self._rendered(chat, self._renderer.text),
            knows=self._knows,
            calls_are_parsed=bool(self._response_template),
            writes_promised=shipped is None,
        )

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read the tokenizer and the end-of-sequence ids of a model's folder or hub id."""
        from transformers import AutoTokenizer, GenerationConfig

        tokenizer = AutoTokenizer.from_pretrained(path)
        ids = {tokenizer.eos_token_id}
        try:
            given = GenerationConfig.from_pretrained(path).eos_token_id
        except OSError:  # a model without generation defaults
            given = None
        ids.update(given if isinstance(given, list) else [given])
        return cls(tokenizer, tuple(sorted(token for token in ids if token is not None)))

    def encode(self, text: str, with_special_tokens: bool = True) -> list[int]:
        with self._encoding:
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=with_special_tokens)
        if not ids:
            raise InvalidRequest("must hold at least 1 token, got 0", "prompt.text")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._decode(ids)

    def encode_chat(self, chat: Chat) -> EncodedChat:
        """Encode a chat; see Tokenizer. System tokens are those of the system messages' contents."""
        try:
            ids, granted = self._template.encode(chat)
        except Exception as error:  # templates are programs and may raise anything, and repeat the whole chat
            reason = str(error)[:LONGEST_REASON]
            raise InvalidRequest(f"the model's chat template rejects the messages: {reason}", "prompt.chat") from error
        calls = self._template.format_of_calls(chat) if chat.needs_calls else ""
        template = "" if calls and self._template.writes_tools(chat) else self._response_template
        last_text = self.decode(ids[-LAST_TOKENS:])
        answer = output_format(chat, calls, self._format_of_reasoning, last_text, template)
        system = "".join(message.content for message in chat.messages if message.role == "system")
        with self._encoding:
            system_ids = self._tokenizer.encode(system, add_special_tokens=False) if system else []
        grammar = call_grammar(chat, answer, self._marker_token) if chat.promises_calls else ""
        return EncodedChat(ids, min(len(system_ids), len(ids)), answer, grammar, granted)

    def encode_system(self, content: str) -> list[int]:
        turns = [{"role": "system", "content": content}]
        try:
            with self._encoding:
                return self._renderer.ids(turns)
        except Exception as error:  # templates are programs and may raise anything; many require a user message
            log.info(
                "the chat template rejects a lone system message: prefixes are not public", extra={"reason": str(error)}
            )
            return []

    def decoder(self) -> Decoder:
        return HuggingFaceDecoder(self._decode, self._token_bytes, self._token_text, self._hidden)

    def _rendered(self, chat: Chat, render: Callable[..., Rendered]) -> Rendered:
        with self._encoding:
            return render(
                turns_of(chat),
                tools_of(chat),
                add_generation_prompt=chat.add_generation_prompt,
                continue_final_message=chat.continue_final_message,
                **chat.variables,
            )

    def _knows(self, variable: str) -> bool:
        return variable in self._template_variables

    @cached_property
    def _template_variables(self) -> frozenset[str]:
        template = self._tokenizer.chat_template
        return template_variables("".join(template.values()) if isinstance(template, dict) else str(template))

    @cached_property
    def _format_of_reasoning(self) -> str:
        return format_of_reasoning(str(self._tokenizer.chat_template))

    @cached_property
    def _marker_token(self) -> int | None:
        """The special token that begins calls; None if the tokenizer has none."""
        special = self._tokenizer.added_tokens_decoder.items()
        return next((token for token, entry in special if entry.special and str(entry) == mistral.BEGIN), None)

    @cached_property
    def _hidden(self) -> frozenset[int]:
        """The special tokens, which are no part of an output's text, but for those by which its parts are told."""
        added = self._tokenizer.added_tokens_decoder
        special = {token for token, entry in added.items() if entry.special} | set(self._tokenizer.all_special_ids)
        shown = {token for token in special if token in added and self._tells_parts(str(added[token]))}
        return frozenset(special - shown) | set(self.eos_token_ids)

    def _tells_parts(self, mark: str) -> bool:
        template = self._response_template
        return mark in mistral.MARKS or (template != "" and ResponseTemplate.parse(template).needs(mark))

    def vocabulary(self) -> Vocabulary:
        """See DecodingTokenizer; llguidance has a tokenizer of its own, made of the same files."""
        from transformers import PreTrainedTokenizerFast

        if not isinstance(self._tokenizer, PreTrainedTokenizerFast):
            raise ValueError("is not supported for a model without a fast tokenizer")
        with self._encoding:
            plain = copy(self._tokenizer.backend_tokenizer)
        plain.no_padding()
        plain.no_truncation()
        return Vocabulary(self.eos_token_ids, tokenizer=plain.to_str())


class ByteDecoder:
    """An incremental decoder of UTF-8 for byte tokens. See Decoder."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(bytes([token])) if token < 256 else ""

    def flush(self) -> str:
        return ""

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b""
