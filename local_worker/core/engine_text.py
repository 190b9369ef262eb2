"""The text of an output that the engine decodes.

The engine has the tokenizer, so it decodes. Stop strings are found here: one that begins in the tokens of an earlier
attempt and ends in those of this one is found too, which an engine that sees only its own attempt cannot do.
"""

from collections.abc import Sequence

from local_worker.core.output_text import StopStrings


class EngineText:
    """A Text that holds back what may be the beginning of a stop string. The engine's text comes before its tokens."""

    def __init__(self, stops: tuple[str, ...], min_tokens: int = 0) -> None:
        self._stops = StopStrings(stops, min_tokens)
        self._arrived = ""

    def resume(self, earlier: str) -> None:
        """Record the text of earlier attempts; the part that they held back is released with this attempt's."""
        self._stops.push(earlier, tokens=0)

    def decoded(self, text: str) -> None:
        """Record text of the tokens that are pushed next."""
        self._arrived += text

    def push(self, tokens: Sequence[int]) -> tuple[str, str]:
        """See Text."""
        text, self._arrived = self._arrived, ""
        return self._stops.push(text, len(tokens))

    def rest(self) -> str:
        """See Text."""
        return self._stops.flush()

    def token_bytes(self, token: int) -> bytes:
        """Return no bytes: they are unknown, because an engine names tokens by their text."""
        return b""
