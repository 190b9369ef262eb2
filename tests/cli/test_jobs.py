"""Simulations in other processes: results in order, and progress that is seen while one is under way."""

import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.jobs import SimulationFailed, run_jobs
from fairlead.errors import InvalidRequest
from simulation.progress import WIDTH, Bar
from simulation.reproduction.item import Ended
from simulation.reproduction.run import Scenario
from simulation.reproduction.streams import Stream, Streams
from simulation.spec import ClusterSpec


class Terminal(io.StringIO):
    """Where a bar is drawn; opens the door of the job that waits for `words`."""

    def __init__(self, words: str = "", door: Path | None = None) -> None:
        super().__init__()
        self._words, self._door = words, door

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._door is not None and self._words in text:
            self._door.open("w").close()
            self._door = None
        return super().write(text)


@dataclass(frozen=True, slots=True)
class Waits:
    """A job of which `calls` are over, and that ends when somebody opens the door."""

    door: Path
    calls: int

    def run(self, ended: Ended | None = None) -> int:
        assert ended is not None
        for _ in range(self.calls):
            ended()
        self.door.open().close()
        return self.calls


@dataclass(frozen=True, slots=True)
class Fails:
    """A job that does not get far."""

    def run(self, ended: Ended | None = None) -> int:
        raise InvalidRequest("not so", "field")


def test_progress_moves_within_one_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job ends only once its three calls have been seen: without that the test never ends."""
    door = tmp_path / "door"
    os.mkfifo(door)
    terminal = Terminal("0 of 1 simulations, 3 of 4 calls", door)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    assert [result for _, result in run_jobs([Waits(door, 3)], 1, calls=4)] == [3]
    drawn = terminal.getvalue()
    assert drawn.startswith(f"\r[{' ' * WIDTH}] 0 of 1 simulations, ")
    assert f"[{'#' * 18}{' ' * 6}] 0 of 1 simulations, 3 of 4 calls" in drawn
    assert drawn.endswith(" \r"), "cleared for what is printed next"


def test_every_call_of_a_scenario_is_counted() -> None:
    ended: list[None] = []
    run = Scenario(ClusterSpec(), Streams((Stream(client="a", per_minute=60.0, output_tokens=5, stop=5.0),))).run(
        lambda: ended.append(None)
    )
    assert len(ended) == len(run.records) == 4


def test_what_goes_wrong_in_a_process_is_said_here() -> None:
    with pytest.raises(SimulationFailed, match="field: not so"):
        list(run_jobs([Fails()], 1))


def test_nothing_is_drawn_where_nobody_looks() -> None:
    stream = io.StringIO()
    bar = Bar(stream)
    bar.show(0.5, "half")
    bar.clear()
    assert stream.getvalue() == ""


def test_a_line_fits_the_terminal_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    terminal = Terminal()
    bar = Bar(terminal)
    bar.show(0.5, "a long text that goes on and on")
    bar.show(1.0, "short")
    bar.clear()
    long, short, cleared = terminal.getvalue().split("\r")[1:4]
    assert (len(long), len(short), cleared) == (49, 49, " " * len(f"[{'#' * WIDTH}] short"))
