"""Stop strings: found across chunk borders, cut from the output."""


class StopStrings:
    """Fed the output's text; gives on only what cannot turn out to be the beginning of a stop string."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """The text that may go on, and whether a stop string was met right after it."""
        if not self._stops:
            return text, False
        self._held += text
        found = [index for index in (self._held.find(stop) for stop in self._stops) if index >= 0]
        if found:
            text, self._held = self._held[: min(found)], ""
            return text, True
        cut = len(self._held) - self._partial()
        text, self._held = self._held[:cut], self._held[cut:]
        return text, False

    def flush(self) -> str:
        """What is still held, at an end that no stop string made."""
        text, self._held = self._held, ""
        return text

    def _partial(self) -> int:
        """The longest end of what is held that begins some stop string."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if stop.startswith(self._held[-size:]):
                    longest = size
                    break
        return longest
