"""Vocabularies whose tokens are known as bytes, as llguidance reads them."""

from collections.abc import Sequence

from llguidance import LLTokenizer, TokenizerWrapper


class ByteVocabulary:
    """A vocabulary that has a token for each byte that it can write, as llguidance's TokenizerWrapper needs it."""

    bos_token_id = None

    def __init__(
        self, tokens: Sequence[bytes], eos_token_ids: Sequence[int], special_token_ids: Sequence[int] = ()
    ) -> None:
        self.tokens = tokens
        self.special_token_ids = sorted({*eos_token_ids, *special_token_ids})
        self.eos_token_id = eos_token_ids[0]
        self._ids = {token: number for number, token in enumerate(tokens)}

    def __call__(self, text: bytes) -> list[int]:
        """Return the tokens of `text`; bytes without a token are left out."""
        pieces = (text[place : place + 1] for place in range(len(text)))
        return [self._ids[piece] for piece in pieces if piece in self._ids]


def vocabulary_of(
    tokens: Sequence[bytes], eos_token_ids: Sequence[int], special_token_ids: Sequence[int] = ()
) -> LLTokenizer:
    """Return the vocabulary in which token `k` stands for `tokens[k]`; those that end a sequence are special, too."""
    wrapper = TokenizerWrapper(ByteVocabulary(tokens, eos_token_ids, special_token_ids))
    return LLTokenizer(wrapper, len(tokens), list(eos_token_ids))
