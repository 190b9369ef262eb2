"""Detection of stop strings across chunk borders. A stop string and the text after it are cut from the output.

The text of the first `min_tokens` tokens, with which an output may not end, is not looked at.
"""


class StopStrings:
    """A filter for the text of one output. It holds back text that may be the beginning of a stop string."""

    def __init__(self, stops: tuple[str, ...], min_tokens: int = 0) -> None:
        self._stops = stops
        self._exempt = min_tokens if stops else 0  # number of tokens whose text is not looked at
        self._held = ""

    def push(self, text: str, tokens: int = 1) -> tuple[str, str]:
        """Append `text`, which comes with `tokens` tokens.

        Return the text that is released and the stop string that follows it, empty for none.
        """
        if not self._stops:
            return text, ""
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
