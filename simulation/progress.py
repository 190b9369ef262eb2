"""How far a long command is: a line on the terminal that is drawn over and, when there is something to say, cleared."""

import shutil
from typing import Self, TextIO

WIDTH = 24  # a terminal's 80 columns hold the words, too


class ProgressBar:
    """Draws nothing unless `stream` is a terminal. As a context it leaves nothing behind, however it ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn = 0  # characters

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, share: float, text: str) -> None:
        """`share` from 0 to 1, and what it is of."""
        if not self._stream.isatty():
            return
        line = f"[{'#' * int(WIDTH * share):<{WIDTH}}] {text}"[: shutil.get_terminal_size().columns - 1]
        print("\r" + line.ljust(self._drawn), end="", file=self._stream, flush=True)
        self._drawn = len(line)

    def clear(self) -> None:
        """The line is free for something else."""
        if self._drawn:
            print("\r" + " " * self._drawn + "\r", end="", file=self._stream, flush=True)
            self._drawn = 0
