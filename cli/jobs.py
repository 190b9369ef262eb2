"""Simulations in parallel processes: results arrive as they finish, and a dead process ends the command with an
error."""

import gc
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Self

from cli.job_progress import JobProgress
from fairlead.errors import FairleadError
from simulation.simulation_job import SimulationJob

LOOK_SECONDS = 0.25  # between two updates of the progress report
Ended = MutableSequence[int]  # shared between the processes: calls that have ended, by job


class SimulationFailed(FairleadError):
    """The error for a job that could not be simulated or whose process was killed."""


class JobAnswer(NamedTuple):
    """The answer of a process to a job: its result, or a sentence about the error."""

    result: Any
    problem: str | None = None


def run_jobs(jobs: Iterable[SimulationJob], processes: int, calls: int = 0) -> Iterator[tuple[SimulationJob, Any]]:
    """Run each distinct job once and yield it with its result as it finishes, in no particular order.

    `calls` is the number of calls that each job simulates, or 0 if it is unknown; then progress advances only when a
    job finishes. Raises SimulationFailed. Leaving the loop, also by Ctrl-C, ends the simulations that still run.
    """
    waiting = deque(enumerate(dict.fromkeys(jobs)))
    with JobProgress(sys.stderr) as progress, JobProcesses(processes, len(waiting)) as crew:
        while waiting or crew.busy:
            while waiting and crew.has_room:
                crew.give(*waiting.popleft())
            progress.show(*_progress(crew.ended, [number for number, _ in crew.busy.values()], len(waiting), calls))
            for job, result in crew.results():
                progress.clear()
                yield job, result


class JobProcesses:
    """Processes that each run one job at a time. They are killed at the end of the context, even during a job.

    Each process has its own pipe and shares no queue: a killed process leaves no lock behind, only a closed pipe.
    """

    def __init__(self, most: int, jobs: int) -> None:
        # Not forks of this process: a fork that inherits gRPC's threads dies when it collects the inherited objects.
        self._context = get_context("forkserver")
        self.ended = self._context.RawArray("q", jobs)
        self._most = most
        self._processes: dict[Connection, BaseProcess] = {}
        self.busy: dict[Connection, tuple[int, SimulationJob]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.join()

    @property
    def has_room(self) -> bool:
        """Whether another job would start at once."""
        return len(self.busy) < self._most

    def give(self, number: int, job: SimulationJob) -> None:
        """Run the job in an idle process, or in a new one."""
        idle = [connection for connection in self._processes if connection not in self.busy]
        connection = idle[0] if idle else self._start()
        self.busy[connection] = number, job
        connection.send((number, job))

    def _start(self) -> Connection:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self.ended), daemon=True)
        process.start()
        self._processes[ours] = process
        theirs.close()  # now only the child holds this end, so the child's death closes the pipe
        return ours

    def results(self) -> Iterator[tuple[SimulationJob, Any]]:
        """Yield the results that arrive within LOOK_SECONDS; raises SimulationFailed when a job or its process
        failed."""
        for connection in wait(self.busy, LOOK_SECONDS):
            assert isinstance(connection, Connection)
            _, job = self.busy.pop(connection)
            yield job, _received(connection, self._processes[connection])


def _received(connection: Connection, process: BaseProcess) -> Any:
    try:
        answer: JobAnswer = connection.recv()
    except (EOFError, ConnectionResetError):
        process.join()
        status = process.exitcode or 0
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        raise SimulationFailed(
            f"a simulation's process was {how}; if memory ran out, try fewer --processes or a shorter trace"
        ) from None
    if answer.problem is not None:
        raise SimulationFailed(answer.problem)
    return answer.result


def _progress(ended: Sequence[int], running: Sequence[int], waiting: int, calls: int) -> tuple[float, str]:
    """Return the finished share of all jobs, and a text about it."""
    done = len(ended) - len(running) - waiting
    begun = sum(min(ended[number] / calls, 1.0) for number in running) if calls else 0.0
    of = f" of {calls * len(ended):,}" if calls else ""
    return (done + begun) / len(ended), f"{done} of {len(ended)} simulations, {sum(ended):,}{of} calls"


def _serve(connection: Connection, ended: Ended) -> None:
    """Run the jobs that arrive, in a child process, until the parent process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; the parent ends this one
    while True:
        try:
            number, job = connection.recv()
        except EOFError:
            return
        gc.collect()  # a simulated system is a reference cycle: the previous one would stay in memory
        try:
            answer = JobAnswer(job.run(partial(_count, ended, number)))
        except FairleadError as error:  # not every error can be sent to another process
            answer = JobAnswer(None, str(error))
        connection.send(answer)


def _count(ended: Ended, number: int) -> None:
    ended[number] += 1
