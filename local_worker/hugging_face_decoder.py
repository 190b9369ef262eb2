"""The incremental decoder of transformers' tokenizers."""

import codecs
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

UTF8 = codecs.getincrementaldecoder("utf-8")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# More tokens than any character consists of: text that is still incomplete after these is invalid.
LONGEST_CHARACTER = 16


def decode_of(tokenizer: Any) -> Callable[[Sequence[int]], str]:
    """Return the function by which `tokenizer` decodes token ids.

    It is that of the backend if transformers changes nothing in the backend's text: this takes a quarter of the time.
    """
    from transformers import PreTrainedTokenizerFast

    kind = type(tokenizer)
    changes_nothing = (
        issubclass(kind, PreTrainedTokenizerFast)
        and kind.decode is PreTrainedTokenizerFast.decode
        and kind._decode is PreTrainedTokenizerFast._decode
        and not tokenizer.clean_up_tokenization_spaces
    )
    decode: Callable[[Sequence[int]], str] = tokenizer.decode
    return partial(tokenizer.backend_tokenizer.decode, skip_special_tokens=False) if changes_nothing else decode


class HuggingFaceDecoder:
    """A decoder that decodes a short window of the latest tokens and returns the new text in it.

    The window starts one complete piece of text earlier, since the text of a token can depend on the tokens before it
    (leading spaces). See Decoder.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        token_bytes: Callable[[int], bytes],
        token_text: Callable[[int], str],
        hidden: frozenset[int],
    ) -> None:
        self._decode = decode
        self.token_bytes = token_bytes
        self._token_text = token_text  # of a token that is decoded alone
        self._hidden = hidden  # tokens without a text
        self._tokens: list[int] = []
        self._start = 0  # index of the window's first token
        self._read = 0  # number of tokens whose text was returned
        self._before = ""  # text of the tokens from `_start` to `_read`

    def push(self, token: int) -> str:
        if token in self._hidden:
            return ""
        self._tokens.append(token)
        before, now, fresh = self._before, self._window_text(), len(self._tokens) - self._read
        is_whole = not now.endswith(REPLACEMENT) or fresh > LONGEST_CHARACTER
        if len(now) <= len(before) or not is_whole:
            return ""
        self._start, self._read = self._read, len(self._tokens)
        # Most windows begin with a single token: what it stands for was decoded before, for this output or another.
        self._before = self._token_text(token) if fresh == 1 else self._window_text()
        return now[len(before) :]

    def flush(self) -> str:
        before, now = self._before, self._window_text()
        unread = b"".join(map(self.token_bytes, self._tokens[self._read :]))
        self._before, self._read = now, len(self._tokens)
        return _without_incomplete(now[len(before) :], unread)

    def _window_text(self) -> str:
        return self._decode(self._tokens[self._start :])


def _without_incomplete(text: str, written: bytes) -> str:
    """Return `text` without the characters that stand for an incomplete one at the end of the bytes `written`."""
    decoder = UTF8(errors="replace")
    whole = decoder.decode(written)
    if not decoder.getstate()[0]:
        return text
    own = len(whole) - len(whole.rstrip(REPLACEMENT))  # those that the model wrote, or that stand for other bytes
    return text.rstrip(REPLACEMENT) + REPLACEMENT * own
