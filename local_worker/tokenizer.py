"""Text to token ids and back, incrementally."""

import codecs
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fairlead.errors import InvalidRequest
from local_worker.core.output_text import Decoder

log = logging.getLogger(__name__)
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Tokens of which one character is made at most, with room to spare; what is no character after these will be none.
LONGEST_CHARACTER = 16


@dataclass(frozen=True, slots=True)
class EncodedChat:
    """A chat as token ids; `system_tokens` of them belong to system messages."""

    ids: list[int]
    system_tokens: int


class Tokenizer(Protocol):
    """A model's tokenizer. Safe to call from several threads."""

    eos_token_ids: tuple[int, ...]
    longest_token: int  # characters, at most, that one token stands for

    def encode(self, text: str) -> list[int]:
        """Raises InvalidRequest when `text` holds no tokens."""

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> EncodedChat:
        """(role, content) pairs by the model's chat template; raises InvalidRequest when it refuses them."""

    def encode_system(self, content: str) -> list[int]:
        """A system message alone, without any that follow; nothing where the template refuses that."""

    def decoder(self) -> Decoder:
        """A decoder for one output."""


class ByteTokenizer:
    """A token is a byte; the fake engine's tokenizer."""

    vocab_size = 257
    longest_token = 1
    eos_token_ids: tuple[int, ...] = (256,)

    def encode(self, text: str) -> list[int]:
        """See Tokenizer."""
        if not text:
            raise InvalidRequest("must hold at least 1 token, got 0", "prompt.text")
        return list(text.encode())

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> EncodedChat:
        """See Tokenizer."""
        turns = [(role, list(f"{role}: {content}\n".encode())) for role, content in messages]
        if not turns:
            raise InvalidRequest("must hold at least 1 message, got 0", "prompt.chat.messages")
        system = sum(len(ids) for role, ids in turns if role == "system")
        return EncodedChat([*(byte for _, ids in turns for byte in ids), *b"assistant: "], system)

    def encode_system(self, content: str) -> list[int]:
        """See Tokenizer."""
        return list(f"system: {content}\n".encode())

    def decoder(self) -> Decoder:
        """See Tokenizer."""
        return ByteDecoder()


class ByteDecoder:
    """Incremental UTF-8."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """See Decoder."""
        return self._decoder.decode(bytes([token])) if token < 256 else ""

    def flush(self) -> str:
        """See Decoder."""
        return self._decoder.decode(b"", final=True)


class HuggingFaceTokenizer:
    """The tokenizer that comes with a model."""

    def __init__(self, tokenizer: Any, eos_token_ids: tuple[int, ...]) -> None:
        self._tokenizer = tokenizer
        self._encoding = threading.Lock()  # encoding sets options of the shared tokenizer
        self.eos_token_ids = eos_token_ids
        # Of what a vocabulary writes for a token: never shorter than its text.
        self.longest_token = max(map(len, tokenizer.get_vocab()))

    @classmethod
    def load(cls, path: Path | str) -> "HuggingFaceTokenizer":
        """Read tokenizer and end-of-sequence ids from a model's folder or hub id."""
        from transformers import AutoTokenizer, GenerationConfig

        tokenizer = AutoTokenizer.from_pretrained(path)
        ids = {tokenizer.eos_token_id}
        try:
            given = GenerationConfig.from_pretrained(path).eos_token_id
        except OSError:  # a model without generation defaults
            given = None
        ids.update(given if isinstance(given, list) else [given])
        return cls(tokenizer, tuple(sorted(token for token in ids if token is not None)))

    def encode(self, text: str) -> list[int]:
        """See Tokenizer."""
        with self._encoding:
            ids: list[int] = self._tokenizer.encode(text)
        if not ids:
            raise InvalidRequest("must hold at least 1 token, got 0", "prompt.text")
        return ids

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> EncodedChat:
        """See Tokenizer. System tokens are those of the system messages' contents."""
        turns = [{"role": role, "content": content} for role, content in messages]
        try:
            with self._encoding:
                ids = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        except Exception as error:  # templates are programs: they raise what they like
            raise InvalidRequest(f"the model's chat template refused it: {error}", "prompt.chat") from error
        system = "".join(content for role, content in messages if role == "system")
        with self._encoding:
            system_ids = self._tokenizer.encode(system, add_special_tokens=False) if system else []
        return EncodedChat(list(ids), min(len(system_ids), len(ids)))

    def encode_system(self, content: str) -> list[int]:
        """See Tokenizer."""
        turns = [{"role": "system", "content": content}]
        try:
            with self._encoding:
                return list(self._tokenizer.apply_chat_template(turns, return_dict=False))
        except Exception as error:  # templates are programs; many want a user's message
            log.info("the chat template takes no system message alone: none is public", extra={"reason": str(error)})
            return []

    def decoder(self) -> Decoder:
        """See Tokenizer."""
        return HuggingFaceDecoder(self._tokenizer)


class HuggingFaceDecoder:
    """Decodes a short window of tokens and gives on what is new in it.

    The window starts one complete text back, since a token's text can depend on what stands before it (leading spaces).
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids)
        self._tokens: list[int] = []
        self._start = 0  # of the window
        self._read = 0  # tokens whose text was given on

    def push(self, token: int) -> str:
        """See Decoder."""
        if token in self._special:
            return ""
        self._tokens.append(token)
        before, now = self._text(self._read), self._text(len(self._tokens))
        is_whole = not now.endswith(REPLACEMENT) or len(self._tokens) - self._read > LONGEST_CHARACTER
        if len(now) <= len(before) or not is_whole:
            return ""
        self._start, self._read = self._read, len(self._tokens)
        return now[len(before) :]

    def flush(self) -> str:
        """See Decoder."""
        before, now = self._text(self._read), self._text(len(self._tokens))
        self._read = len(self._tokens)
        return now[len(before) :]

    def _text(self, stop: int) -> str:
        text: str = self._tokenizer.decode(self._tokens[self._start : stop], skip_special_tokens=True)
        return text
