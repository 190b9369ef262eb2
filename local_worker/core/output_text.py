"""The text of one output: its tokens decoded, and cut at a stop string."""

from collections.abc import Sequence
from typing import Protocol

from local_worker.core.stop_strings import StopStrings


class Decoder(Protocol):
    """An incremental decoder for one output. The text so far depends on the tokens so far, not on their grouping."""

    def push(self, token: int) -> str:
        """Return the text that `token` completes; an incomplete character is held back."""

    def flush(self) -> str:
        """Return the text that is still held back, without the bytes of an incomplete character."""

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes for which a token stands by itself, which may be a part of a character."""


class Text(Protocol):
    """The interface between a request and the text of its output."""

    def push(self, tokens: Sequence[int]) -> tuple[str, str]:
        """Append `tokens`; return the text that is released, and the stop string that ends the output, if any."""

    def rest(self) -> str:
        """Return the text that is still held back, when the output ends without a stop string."""

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes for which a token stands by itself."""


class NoText:
    """The Text of an output whose tokens are not decoded."""

    def push(self, tokens: Sequence[int]) -> tuple[str, str]:
        """See Text."""
        return "", ""

    def rest(self) -> str:
        """See Text."""
        return ""

    def token_bytes(self, token: int) -> bytes:
        """See Text."""
        return b""


class OutputText:
    """Decodes tokens, and holds back text that may be the beginning of a stop string.

    `generated` are the output tokens of earlier attempts. Their released text was sent already. The text that they held
    back was not sent, and is released with this attempt's tokens.
    """

    def __init__(
        self, decoder: Decoder, stops: tuple[str, ...] = (), generated: Sequence[int] = (), min_tokens: int = 0
    ) -> None:
        """Begin an output, in whose next `min_tokens` tokens no stop string is looked for."""
        self._decoder = decoder
        self._stops = StopStrings(stops, len(generated) + min_tokens if min_tokens else 0)
        for token in generated:
            self._stops.push(decoder.push(token))

    def push(self, tokens: Sequence[int]) -> tuple[str, str]:
        """See Text."""
        released = ""
        for token in tokens:
            text, stop = self._stops.push(self._decoder.push(token))
            released += text
            if stop:
                return released, stop
        return released, ""

    def rest(self) -> str:
        """See Text."""
        text, stop = self._stops.push(self._decoder.flush())
        return text if stop else text + self._stops.flush()

    def token_bytes(self, token: int) -> bytes:
        """See Text."""
        return self._decoder.token_bytes(token)
