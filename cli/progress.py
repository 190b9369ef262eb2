"""The progress of a long command: rows that are redrawn in place on a terminal, or else plain lines.

    with Progress(sys.stderr) as progress:
        progress.show("worker-0", "loading weights")
        while loading():
            progress.tick()
        progress.done("worker-0", "ready")

A row stands for a process, a simulation or another operation; its step is the current activity. `detail` is the
progress within a step, and changes often. On a terminal, the rows that are not done are below all other output, each
with the seconds of its step, and a finished row remains as a line. Otherwise each step is printed when it begins, with
the seconds since the command began, and a line every ten seconds names what the command waits for.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TextIO

LINE_SECONDS = 10.0  # between two lines without a terminal
UP, ERASE = "\x1b[{}A", "\x1b[J"


@dataclass(slots=True)
class _Row:
    began: float
    step: str
    since: float  # start of the step
    detail: str


class Progress:
    """A progress report that draws at each change and each `tick`. As a context manager it clears its rows on every
    exit."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._began = self._said = now()
        self._rows: dict[str, _Row] = {}
        self._drawn: list[str] = []
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, name: str, step: str, detail: str = "") -> None:
        """Set the step and the detail of row `name`; the row is added if it does not exist."""
        now = self._now()
        row = self._rows.setdefault(name, _Row(now, "", now, ""))
        row.detail = detail
        if row.step != step:
            row.step, row.since = step, now
            self._say(f"{name}: {step}")
        self.tick()

    def done(self, name: str, result: str) -> None:
        """End row `name` with `result`; its line remains, with the seconds since its first step."""
        now = self._now()
        row = self._rows.pop(name, _Row(now, "", now, ""))
        if self._live:
            self.clear()
            self._write(f"{name}: {result} ({now - row.began:.0f} s)\n")
        self._say(f"{name}: {result}")
        self.tick()

    def tick(self) -> None:
        """Redraw the rows; call this several times a second while waiting."""
        if self._live:
            self._draw()
        elif self._rows and self._now() - self._said >= LINE_SECONDS:
            self._say("waiting for " + "; ".join(self._described()))

    def clear(self) -> None:
        """Remove the rows from the terminal before other output; the next `tick` draws them again."""
        if self._drawn:
            self._write(self._erasure())
            self._drawn = []

    def _draw(self) -> None:
        columns, height = shutil.get_terminal_size()
        rows = self._described()
        most = max(1, height - 2)
        if len(rows) > most:
            rows[most:] = [f"and {len(rows) - most} more"]
        rows = [row[: columns - 1] for row in rows]
        if rows != self._drawn:
            self._write(self._erasure() + "".join(f"{row}\n" for row in rows))
            self._drawn = rows

    def _erasure(self) -> str:
        return UP.format(len(self._drawn)) + ERASE if self._drawn else ""

    def _described(self) -> list[str]:
        now = self._now()
        return [
            f"{name}: {row.step}{row.detail and f', {row.detail}'} ({now - row.since:.0f} s)"
            for name, row in self._rows.items()
        ]

    def _say(self, line: str) -> None:
        """Print a line if there is no terminal."""
        if not self._live:
            self._said = self._now()
            self._write(f"[{self._said - self._began:3.0f} s] {line}\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # nobody looks any more, which must not keep a command from ending its work
            self._stream.write(text)
            self._stream.flush()
