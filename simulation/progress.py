"""A progress line on the terminal that is redrawn in place, and cleared before other output."""

import shutil
from typing import Self, TextIO

WIDTH = 24  # columns of the bar; the text fits beside it in 80 columns


class ProgressBar:
    """A bar that is drawn only if `stream` is a terminal. As a context manager it clears its line on every exit."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn = 0  # characters

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, share: float, text: str) -> None:
        """Draw the bar at `share`, from 0 to 1, with `text` beside it."""
        if not self._stream.isatty():
            return
        line = f"[{'#' * int(WIDTH * share):<{WIDTH}}] {text}"[: shutil.get_terminal_size().columns - 1]
        print("\r" + line.ljust(self._drawn), end="", file=self._stream, flush=True)
        self._drawn = len(line)

    def clear(self) -> None:
        """Clear the line, so that other output can use it."""
        if self._drawn:
            print("\r" + " " * self._drawn + "\r", end="", file=self._stream, flush=True)
            self._drawn = 0
