"""The text of one output, made from its tokens and cut at a stop string."""

from collections.abc import Sequence
from typing import Protocol

from local_worker.core.stop_strings import StopStrings


class Decoder(Protocol):
    """Decodes one output token by token. The text so far is a function of the tokens so far alone."""

    def push(self, token: int) -> str:
        """Return the text that `token` completes; an incomplete character is held back."""

    def flush(self) -> str:
        """Return the text that is still held, as replacement characters where it is not valid text."""


class Text(Protocol):
    """What a job needs of its output's text."""

    def push(self, tokens: Sequence[int]) -> tuple[str, bool]:
        """Return the text that `tokens` release, and whether a stop string ends the output there."""

    def rest(self) -> str:
        """Return the text that is still held back at the end of an output that no stop string ended."""


class OutputText:
    """Decodes tokens and holds text back for as long as it may turn out to be the beginning of a stop string.

    `generated` are output tokens of earlier attempts. Their text was sent already; what they held back was not, and
    comes with the first token that releases it.
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
