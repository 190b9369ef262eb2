"""How far a long command is: rows that are drawn live on a terminal, plain lines elsewhere.

    with Progress(sys.stderr) as progress:
        progress.show("worker-0", "loading weights")
        while loading():
            progress.tick()
        progress.done("worker-0", "ready")

A row is a process, a simulation or whatever else is waited for; a step is what it is doing. Of a step one can show how
far it is (`detail`), which changes often. On a terminal the rows that are not done stand below everything else, each
with the seconds of its step, and a row that is done stays as a line. Elsewhere each step is a line when it begins, with
the seconds since the command began, and a line every ten seconds says what is waited for.
"""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TextIO

LINE_SECONDS = 10.0  # between two lines where there is no terminal
UP, ERASE = "\x1b[{}A", "\x1b[J"


@dataclass(slots=True)
class _Row:
    began: float
    step: str
    since: float  # of the step
    detail: str


class Progress:
    """Draws when something changes and at each `tick`; as a context it leaves no half-drawn rows, however it ends."""

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
        """Row `name` is at `step` now, and so far with it as `detail` says; the row is made if there is none."""
        now = self._now()
        row = self._rows.setdefault(name, _Row(now, "", now, ""))
        row.detail = detail
        if row.step != step:
            row.step, row.since = step, now
            self._say(f"{name}: {step}")
        self.tick()

    def done(self, name: str, result: str) -> None:
        """Row `name` has ended with `result`; its line stays, with the seconds since its first step."""
        now = self._now()
        row = self._rows.pop(name, _Row(now, "", now, ""))
        if self._live:
            self.clear()
            self._write(f"{name}: {result} ({now - row.began:.0f} s)\n")
        self._say(f"{name}: {result}")
        self.tick()

    def tick(self) -> None:
        """To be called several times a second while waiting."""
        if self._live:
            self._draw()
        elif self._rows and self._now() - self._said >= LINE_SECONDS:
            self._say("waiting for " + "; ".join(self._described()))

    def clear(self) -> None:
        """Take the live rows off the terminal, so that something else can be printed; the next `tick` draws them."""
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
        """A line, where there is no terminal."""
        if not self._live:
            self._said = self._now()
            self._write(f"[{self._said - self._began:3.0f} s] {line}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
