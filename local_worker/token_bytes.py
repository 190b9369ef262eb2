"""The bytes for which single tokens of a Hugging Face tokenizer stand.

Decoding a single token does not tell them: a part of a character becomes U+FFFD, and a leading space may be lost.
"""

import json
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's mark of a space


class TokenBytes:
    """A function from token id to bytes.

    Vocabularies write bytes in one of three ways: byte-level ones as a character each (GPT-2's table), those with a
    fallback as `<0xE2>` for what is no entry, with U+2581 for a space, and others as plain text.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __call__(self, token: int) -> bytes:
        """Return the bytes of `token`; none for an id without an entry, special tokens by their names."""
        added = self._added.get(token)
        if added is not None:
            return added
        entry: str | None = self._tokenizer.convert_ids_to_tokens(token)
        if entry is None:
            return b""
        if self._is_byte_level:
            return bytes(_BYTE_LEVEL[character] for character in entry if character in _BYTE_LEVEL)
        if byte := _BYTE.fullmatch(entry):
            return bytes([int(byte[1], 16)])
        return entry.replace(_SPACE, " ").encode()

    @cached_property
    def _added(self) -> dict[int, bytes]:
        return {token: str(added).encode() for token, added in self._tokenizer.added_tokens_decoder.items()}

    @cached_property
    def _is_byte_level(self) -> bool:
        """Whether the tokenizer's decoder, or a part of it, is of the kind ByteLevel."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        return backend is not None and "ByteLevel" in _kinds(json.loads(backend.to_str())["decoder"])


def _kinds(decoder: dict[str, Any] | None) -> Iterator[str]:
    if decoder is not None:
        yield decoder["type"]
        for part in decoder.get("decoders", ()):
            yield from _kinds(part)


def _byte_level() -> dict[str, int]:
    """Return GPT-2's table: printable characters of Latin-1 stand for themselves, other bytes for U+0100 and on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if chr(byte) not in table)
    return table | {chr(256 + number): byte for number, byte in enumerate(others)}


_BYTE_LEVEL = _byte_level()
