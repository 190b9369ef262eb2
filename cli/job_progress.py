"""How far simulations are: a bar on a terminal, elsewhere a line every ten seconds."""

import time
from collections.abc import Callable
from typing import Self, TextIO

from cli.progress import LINE_SECONDS
from simulation.progress import ProgressBar


class JobProgress:
    """As a context it leaves no half-drawn bar, however it ends; `now` is a clock in seconds."""

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
        """`share` from 0 to 1, and what it is of; to be called several times a second."""
        self._bar.show(share, text)
        now = self._now()
        if not self._stream.isatty() and now - self._said >= LINE_SECONDS:
            self._said = now
            print(f"[{now - self._began:3.0f} s] {share:.0%}: {text}", file=self._stream, flush=True)

    def clear(self) -> None:
        """The terminal is free for something else."""
        self._bar.clear()
