"""The text of one output: its tokens decoded, and cut at a stop string."""

from collections.abc import Sequence
from typing import Protocol


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
        return "", ""

    def rest(self) -> str:
        return ""

    def token_bytes(self, token: int) -> bytes:
        return b""


class OutputText:
    """Decodes tokens, and holds back text that may be the beginning of a stop string.

    `generated` are the output tokens of earlier attempts. Their released text was sent already. The text that they held
    back was not sent, and is released with this attempt's tokens. See Text.
    """

    def __init__(
        self, decoder: Decoder, stops: tuple[str, ...] = (), generated: Sequence[int] = (), min_tokens: int = 0
    ) -> None:
        """Begin an output, in whose next `min_tokens` tokens no stop string is looked for."""
        self._decoder = decoder
        self._stops = StopStrings(stops, len(generated) + min_tokens if min_tokens else 0) if stops else None
        for token in generated:
            text = decoder.push(token)
            if self._stops is not None:
                self._stops.push(text)

    def push(self, tokens: Sequence[int]) -> tuple[str, str]:
        released = ""
        for token in tokens:
            text = self._decoder.push(token)
            if self._stops is not None:
                text, stop = self._stops.push(text)
                if stop:
                    return released + text, stop
            released += text
        return released, ""

    def rest(self) -> str:
        rest = self._decoder.flush()
        if self._stops is None:
            return rest
        text, stop = self._stops.push(rest)
        return text if stop else text + self._stops.flush()

    def token_bytes(self, token: int) -> bytes:
        return self._decoder.token_bytes(token)


class StopStrings:
    """Detection of stop strings across the borders of chunks. A stop string and the text after it are cut off.

    Text that may be the beginning of a stop string is held back. The text of the first `min_tokens` tokens, with which
    an output may not end, is not looked at.
    """

    def __init__(self, stops: tuple[str, ...], min_tokens: int = 0) -> None:
        self._stops = stops
        self._exempt = min_tokens  # number of tokens whose text is not looked at
        self._held = ""

    def push(self, text: str, tokens: int = 1) -> tuple[str, str]:
        """Append `text`, which comes with `tokens` tokens.

        Return the text that is released and the stop string that follows it, empty for none.
        """
        if self._exempt > 0:
            self._exempt -= tokens
            return text, ""
        self._held += text
        found = [(self._held.find(stop), stop) for stop in self._stops if stop in self._held]
        if found:
            index, stop = min(found)
            text, self._held = self._held[:index], ""
            return text, stop
        cut = len(self._held) - self._partial()
        text, self._held = self._held[:cut], self._held[cut:]
        return text, ""

    def flush(self) -> str:
        """Return the text that is still held back, when the output ends without a stop string."""
        text, self._held = self._held, ""
        return text

    def _partial(self) -> int:
        """Return the length of the longest suffix of the held text that is a prefix of a stop string."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if stop.startswith(self._held[-size:]):
                    longest = size
                    break
        return longest


class EngineText:
    """A Text that the engine decodes, which has the tokenizer then. The engine's text comes before its tokens.

    Stop strings are found here: one that begins in the tokens of an earlier attempt and ends in those of this one is
    found too, which an engine that sees only its own attempt cannot do.
    """

    def __init__(self, stops: tuple[str, ...], min_tokens: int = 0) -> None:
        self._stops = StopStrings(stops, min_tokens) if stops else None
        self._arrived = ""

    def resume(self, earlier: str) -> None:
        """Record the text of earlier attempts; the part that they held back is released with this attempt's."""
        if self._stops is not None:
            self._stops.push(earlier, tokens=0)

    def decoded(self, text: str) -> None:
        """Record text of the tokens that are pushed next."""
        self._arrived += text

    def push(self, tokens: Sequence[int]) -> tuple[str, str]:
        text, self._arrived = self._arrived, ""
        return (text, "") if self._stops is None else self._stops.push(text, len(tokens))

    def rest(self) -> str:
        return "" if self._stops is None else self._stops.flush()

    def token_bytes(self, token: int) -> bytes:
        """Return no bytes: they are unknown, because an engine names tokens by their text."""
        return b""
