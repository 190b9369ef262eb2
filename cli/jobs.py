"""Simulations in parallel processes, with progress."""

import gc
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count
from multiprocessing import get_context
from typing import Any

from fairlead.errors import FairleadError
from simulation.reproduction.item import Job


class SimulationFailed(FairleadError):
    """What went wrong in a process; other errors cannot all be sent to the one that asked."""


def run_jobs(jobs: Iterable[Job], processes: int) -> Iterator[tuple[Job, Any]]:
    """Each job once, in order, with its result as soon as it and those before it are done."""
    distinct = list(dict.fromkeys(jobs))
    done = count(1)

    def progress(_: Any) -> None:
        if sys.stderr.isatty():
            _show(next(done), len(distinct))

    # Clean processes: a fork of one that has gRPC and its threads dies when it collects what it has inherited.
    with get_context("forkserver").Pool(min(processes, len(distinct) or 1)) as pool:
        running = deque(pool.apply_async(_run, (job,), callback=progress) for job in distinct)
        for job in distinct:
            yield job, running.popleft().get()


def _run(job: Job) -> Any:
    gc.collect()  # a simulated system is a cycle: the one before would stay beside this one
    try:
        return job.run()
    except FairleadError as error:
        raise SimulationFailed(str(error)) from None


def _show(done: int, of: int) -> None:
    bar = "#" * (40 * done // of)
    print(f"\r[{bar:<40}] {done} of {of} simulations", end="\n" if done == of else "", file=sys.stderr, flush=True)
