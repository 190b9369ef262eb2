"""Vocabularies as llguidance reads them, which can be sent to another process."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from llguidance import LLTokenizer


class ByteVocabulary:
    """A vocabulary that has a token for each byte that it can write, as llguidance's TokenizerWrapper needs it."""

    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], eos_token_ids: Sequence[int], special_token_ids: Sequence[int]) -> None:
        self.tokens = tokens
        self.special_token_ids = [*eos_token_ids, *special_token_ids]
        self.eos_token_id = eos_token_ids[0]
        self._ids = {token: number for number, token in enumerate(tokens)}

    def __call__(self, text: bytes) -> list[int]:
        """Return the tokens of `text`; bytes without a token are left out."""
        pieces = (text[place : place + 1] for place in range(len(text)))
        return [self._ids[piece] for piece in pieces if piece in self._ids]


class Vocabulary(NamedTuple):
    """The tokens of a model: `tokenizer`, that of a fast Hugging Face tokenizer as JSON, or else `tokens`.

    Token `k` stands for `tokens[k]`; those that end a sequence are special, and so are the further ones.
    """

    eos_token_ids: Sequence[int]
    tokens: Sequence[bytes] = ()
    special_token_ids: Sequence[int] = ()
    tokenizer: str = ""

    def load(self) -> "LLTokenizer":
        """Return the vocabulary as llguidance holds it, which takes up to some seconds."""
        from llguidance import LLTokenizer, TokenizerWrapper

        ends = list(self.eos_token_ids)
        if self.tokenizer:
            return LLTokenizer(self.tokenizer, eos_token=ends)
        wrapper = TokenizerWrapper(ByteVocabulary(self.tokens, ends, self.special_token_ids))
        return LLTokenizer(wrapper, len(self.tokens), ends)
