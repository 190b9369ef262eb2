"""The progress of simulations: a bar on a terminal, or else a line every ten seconds."""

import time
from collections.abc import Callable
from typing import Self, TextIO

from cli.progress import LINE_SECONDS
from simulation.progress import ProgressBar


class JobProgress:
    """A progress report that a context manager clears on every exit; `now` is a clock in seconds."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._bar = ProgressBar(stream)
        self._began = self._said = now()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, share: float, text: str) -> None:
        """Report `share`, from 0 to 1, with `text` beside it; call this several times a second."""
        self._bar.show(share, text)
        now = self._now()
        if not self._stream.isatty() and now - self._said >= LINE_SECONDS:
            self._said = now
            print(f"[{now - self._began:3.0f} s] {share:.0%}: {text}", file=self._stream, flush=True)

    def clear(self) -> None:
        """Clear the bar, so that other output can use the terminal."""
        self._bar.clear()
