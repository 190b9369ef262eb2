"""The text of one output: its tokens decoded, and cut at a stop string."""

from collections.abc import Sequence
from typing import Protocol

from local_worker.core.stop_strings import StopStrings


class Decoder(Protocol):
    """An incremental decoder for one output. The text so far depends on the tokens so far, not on their grouping."""

    def push(self, token: int) -> str:
        """Return the text that `token` completes; an incomplete character is held back."""

    def flush(self) -> str:
        """Return the text that is still held back; bytes that are not valid text become replacement characters."""


class Text(Protocol):
    """The interface between a job and the text of its output."""

    def push(self, tokens: Sequence[int]) -> tuple[str, bool]:
        """Append `tokens`; return the text that is released, and whether a stop string ends the output after it."""

    def rest(self) -> str:
        """Return the text that is still held back, when the output ends without a stop string."""


class OutputText:
    """Decodes tokens, and holds back text that may be the beginning of a stop string.

    `generated` are the output tokens of earlier attempts. Their released text was sent already. The text that they held
    back was not sent, and is released with this attempt's tokens.
    """

    def __init__(self, decoder: Decoder, stops: tuple[str, ...] = (), generated: Sequence[int] = ()) -> None:
        self._decoder = decoder
        self._stops = StopStrings(stops)
        for token in generated:
            self._stops.push(decoder.push(token))

    def push(self, tokens: Sequence[int]) -> tuple[str, bool]:
        """See Text."""
        released = ""
        for token in tokens:
            text, stopped = self._stops.push(self._decoder.push(token))
            released += text
            if stopped:
                return released, True
        return released, False

    def rest(self) -> str:
        """See Text."""
        text, stopped = self._stops.push(self._decoder.flush())
        return text if stopped else text + self._stops.flush()
