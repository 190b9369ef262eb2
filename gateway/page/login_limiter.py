"""The limit on guesses of the page's key."""

from collections import OrderedDict
from dataclasses import dataclass

MOST_GUESSES = 10  # that were wrong, of an address in WINDOW_SECONDS
WINDOW_SECONDS = 60.0
MOST_ADDRESSES = 1000


@dataclass(slots=True)
class _Window:
    began: float
    guesses: int = 0


class LoginLimiter:
    """Counts wrong keys by address; `now` is in seconds and never decreases."""

    def __init__(self) -> None:
        self._windows: OrderedDict[str, _Window] = OrderedDict()  # that began first comes first

    def wait(self, address: str, now: float) -> float:
        """Return the seconds until `address` may try a key; 0: now."""
        window = self._windows.get(address)
        if window is None or window.guesses < MOST_GUESSES:
            return 0.0
        return max(0.0, window.began + WINDOW_SECONDS - now)

    def failed(self, address: str, now: float) -> bool:
        """Count a wrong key; return whether it is the first of its window."""
        window = self._windows.get(address)
        if window is None or now >= window.began + WINDOW_SECONDS:
            window = self._windows[address] = _Window(now)
            self._windows.move_to_end(address)
            if len(self._windows) > MOST_ADDRESSES:
                self._windows.popitem(last=False)
        window.guesses += 1
        return window.guesses == 1
