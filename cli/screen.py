"""Frames of a live view: redrawn in place on a terminal, or else printed one after the other."""

import os
import shutil
from enum import StrEnum
from typing import Self, TextIO

HOME, END_OF_LINE, END_OF_SCREEN, CLEAR = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[2J"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class Style(StrEnum):
    """The style of a line on a terminal. It has no effect elsewhere, or if NO_COLOR is set (no-color.org)."""

    PLAIN = ""
    BOLD = "\x1b[1m"
    DIM = "\x1b[2m"
    YELLOW = "\x1b[33m"
    RED = "\x1b[31m"


RESET = "\x1b[0m"
Line = tuple[str, Style]


class Screen:
    """A context manager for frames that leaves the last frame on the terminal, with the cursor below it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._has_colour = self._is_terminal and not os.environ.get("NO_COLOR")

    def __enter__(self) -> Self:
        if self._is_terminal:
            self._write(HIDE_CURSOR + CLEAR)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal:
            self._write(SHOW_CURSOR + "\n")

    @property
    def width(self) -> int:
        """The number of characters that fit in a line."""
        return shutil.get_terminal_size().columns

    def show(self, lines: list[Line]) -> None:
        """Show the lines; lines beyond the height of the terminal are left out."""
        if self._is_terminal:
            painted = [self._paint(*line) + END_OF_LINE for line in lines[: shutil.get_terminal_size().lines - 1]]
            self._write(HOME + "\n".join(painted) + END_OF_SCREEN)
        else:
            self._write("".join(f"{text}\n" for text, _ in lines) + "\n")

    def _paint(self, text: str, style: Style) -> str:
        return f"{style}{text}{RESET}" if style and self._has_colour else text

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
