"""What a long command shows while it waits, on a terminal and elsewhere."""

import contextlib
import io
import os
import re

import pytest

from cli.progress import Progress


class Screen(io.StringIO):
    """A terminal: knows the two sequences that move and erase, and what stands on it in the end."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        lines: list[str] = []
        for up, line in re.findall(r"\x1b\[(\d+)A\x1b\[J|(.*)\n", self.getvalue()):
            if up:
                assert len(lines) >= int(up), "it moves above its first line"
                del lines[-int(up) :]
            else:
                lines.append(line)
        return lines


class Clock:
    """Stands until it is told to go on."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "6")
    return Screen()


def test_rows_are_live_on_a_terminal_and_lines_once_they_are_done(screen: Screen, clock: Clock) -> None:
    with Progress(screen, clock) as progress:
        progress.show("a", "starting")
        clock.seconds += 2
        progress.show("b", "starting")
        progress.show("a", "loading", "3 of 7")
        clock.seconds += 5
        progress.tick()
        assert screen.lines() == ["a: loading, 3 of 7 (5 s)", "b: starting (5 s)"]
        progress.done("b", "ready")
        assert screen.lines() == ["b: ready (5 s)", "a: loading, 3 of 7 (5 s)"]
        progress.clear()
        assert screen.lines() == ["b: ready (5 s)"]
        progress.tick()
    assert screen.lines() == ["b: ready (5 s)"], "nothing half-done is left behind"


def test_nothing_is_drawn_again_that_has_not_changed(screen: Screen, clock: Clock) -> None:
    with Progress(screen, clock) as progress:
        progress.show("a", "starting")
        before = screen.getvalue()
        progress.tick()
        assert screen.getvalue() == before


def test_rows_fit_the_terminal(screen: Screen, clock: Clock) -> None:
    with Progress(screen, clock) as progress:
        for number in range(9):
            progress.show(f"row {number}", "x" * 200)
        lines = screen.lines()
    assert len(lines) < 6
    assert lines[-1] == "and 5 more"
    assert max(map(len, lines)) < 60


def test_without_a_terminal_each_step_is_a_line_and_waiting_is_one_every_ten_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(stream, clock) as progress:
        progress.show("a", "starting")
        for done in range(25):
            clock.seconds += 1
            progress.show("a", "loading", f"{done} of 25")
            progress.tick()
        progress.done("a", "ready")
    assert stream.getvalue().splitlines() == [
        "[  0 s] a: starting",
        "[  1 s] a: loading",
        "[ 11 s] waiting for a: loading, 10 of 25 (10 s)",
        "[ 21 s] waiting for a: loading, 20 of 25 (20 s)",
        "[ 25 s] a: ready",
    ]


def test_a_terminal_that_is_gone_ends_nothing(clock: Clock) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    with Progress(stream, clock) as progress:
        progress.show("a", "starting")
        progress.done("a", "ready")
    with contextlib.suppress(BrokenPipeError):
        stream.close()
