"""The progress of simulations: a bar that is redrawn in place on a terminal, or else a line every ten seconds."""

import shutil
import time
from collections.abc import Callable
from typing import Self, TextIO

from cli.progress import LINE_SECONDS

WIDTH = 24  # columns of the bar; the text fits beside it in 80 columns


class JobProgress:
    """A progress report that a context manager clears on every exit; `now` is a clock in seconds."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._began = self._said = now()
        self._drawn = 0  # characters

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, share: float, text: str) -> None:
        """Report `share`, from 0 to 1, with `text` beside it; call this several times a second."""
        if self._stream.isatty():
            line = f"[{'#' * int(WIDTH * share):<{WIDTH}}] {text}"[: shutil.get_terminal_size().columns - 1]
            print("\r" + line.ljust(self._drawn), end="", file=self._stream, flush=True)
            self._drawn = len(line)
        elif (now := self._now()) - self._said >= LINE_SECONDS:
            self._said = now
            print(f"[{now - self._began:3.0f} s] {share:.0%}: {text}", file=self._stream, flush=True)

    def clear(self) -> None:
        """Clear the bar, so that other output can use the terminal."""
        if self._drawn:
            print("\r" + " " * self._drawn + "\r", end="", file=self._stream, flush=True)
            self._drawn = 0
