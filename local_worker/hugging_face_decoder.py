"""The incremental decoder of transformers' tokenizers."""

from collections.abc import Callable
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# More tokens than any character consists of: text that is still incomplete after these is invalid.
LONGEST_CHARACTER = 16


class HuggingFaceDecoder:
    """A decoder that decodes a short window of the latest tokens and returns the new text in it.

    The window starts one complete piece of text earlier, since the text of a token can depend on the tokens before it
    (leading spaces).
    """

    def __init__(self, tokenizer: Any, token_bytes: Callable[[int], bytes], hidden: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self.token_bytes = token_bytes
        self._hidden = hidden  # tokens without a text
        self._tokens: list[int] = []
        self._start = 0  # index of the window's first token
        self._read = 0  # number of tokens whose text was returned

    def push(self, token: int) -> str:
        """See Decoder."""
        if token in self._hidden:
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
        text: str = self._tokenizer.decode(self._tokens[self._start : stop])
        return text
