"""Simulations in other processes: results as they come, progress that is seen while one is under way, and an end
whatever happens to a process."""

import io
import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.job_progress import WIDTH, JobProgress
from cli.jobs import SimulationFailed, run_jobs
from fairlead.errors import InvalidRequest
from lab.reproduction.streams import Stream, Streams
from simulation.run import Scenario
from simulation.simulation_job import Ended
from simulation.spec import ClusterSpec

pytestmark = pytest.mark.slow


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


@dataclass(frozen=True, slots=True)
class Dies:
    """A job whose process is killed from outside once it runs, as by a system that is out of memory."""

    def run(self, ended: Ended | None = None) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Number:
    """A job that is done at once."""

    number: int

    def run(self, ended: Ended | None = None) -> int:
        return self.number


def test_a_killed_process_is_an_error_and_no_wait_without_end() -> None:
    with pytest.raises(SimulationFailed, match="killed by SIGKILL; if memory ran out, try fewer --processes"):
        list(run_jobs([Dies()], 1))
    assert not multiprocessing.active_children()


def test_a_result_does_not_wait_for_the_jobs_before_it(tmp_path: Path) -> None:
    """The first job ends only after the other's result has come: without that the test never ends."""
    door = tmp_path / "door"
    os.mkfifo(door)
    results = run_jobs([Waits(door, 1), Number(7)], 2)
    assert next(results)[1] == 7
    door.open("w").close()
    assert next(results)[1] == 1


def test_each_job_is_run_once_by_as_many_processes_as_allowed() -> None:
    results = sorted(result for _, result in run_jobs([Number(n % 5) for n in range(10)], 2))
    assert results == [0, 1, 2, 3, 4]


def test_who_leaves_ends_the_simulations_that_run(tmp_path: Path) -> None:
    """Nobody ever opens the door."""
    door = tmp_path / "door"
    os.mkfifo(door)
    results = run_jobs([Waits(door, 0), Number(7)], 2)
    assert next(results)[1] == 7
    results.close()  # type: ignore[attr-defined]  # as Ctrl-C in the loop does
    assert not multiprocessing.active_children()


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


def test_an_error_in_a_child_process_is_raised_in_the_parent() -> None:
    with pytest.raises(SimulationFailed, match="field: not so"):
        list(run_jobs([Fails()], 1))


def test_nothing_is_drawn_where_nobody_looks() -> None:
    stream = io.StringIO()
    bar = JobProgress(stream)
    bar.show(0.5, "half")
    bar.clear()
    assert stream.getvalue() == ""


def test_a_line_fits_the_terminal_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    terminal = Terminal()
    bar = JobProgress(terminal)
    bar.show(0.5, "a long text that goes on and on")
    bar.show(1.0, "short")
    bar.clear()
    long, short, cleared = terminal.getvalue().split("\r")[1:4]
    assert (len(long), len(short), cleared) == (49, 49, " " * len(f"[{'#' * WIDTH}] short"))


def test_without_a_terminal_a_line_every_ten_seconds_says_how_far_it_is() -> None:
    stream, seconds = io.StringIO(), iter([0.0, 1.0, 9.9, 10.0, 19.0, 20.5])
    with JobProgress(stream, now=lambda: next(seconds)) as progress:
        for done in range(5):
            progress.show(done / 5, f"{done} of 5")
    assert stream.getvalue() == "[ 10 s] 40%: 2 of 5\n[ 20 s] 80%: 4 of 5\n"
