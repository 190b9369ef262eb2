"""Simulations in parallel processes, with progress."""

import gc
import sys
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from functools import partial
from multiprocessing import get_context
from typing import Any

from fairlead.errors import FairleadError
from simulation.progress import Bar
from simulation.reproduction.item import Job

LOOK_SECONDS = 0.25  # between two looks at how far the simulations are
_ended: MutableSequence[int] = []  # in a process of the pool: calls ended by job, seen by the process that asked


class SimulationFailed(FairleadError):
    """What went wrong in a process; other errors cannot all be sent to the one that asked."""


def run_jobs(jobs: Iterable[Job], processes: int, calls: int = 0) -> Iterator[tuple[Job, Any]]:
    """Each job once, in order, with its result as soon as it and those before it are done.

    `calls` is how many each job simulates, 0 where nobody knows; then progress moves only when a job is done.
    """
    distinct = list(dict.fromkeys(jobs))
    # Clean processes: a fork of one that has gRPC and its threads dies when it collects what it has inherited.
    context = get_context("forkserver")
    ended = context.RawArray("q", len(distinct))
    with Bar(sys.stderr) as bar, context.Pool(min(processes, len(distinct) or 1), _share, (ended,)) as pool:
        results = {number: pool.apply_async(_run, (number, job)) for number, job in enumerate(distinct)}
        for number, job in enumerate(distinct):
            while not results[number].ready():
                left = [other for other, result in results.items() if not result.ready()]
                bar.show(*_progress(ended, left, calls))
                results[number].wait(LOOK_SECONDS)
            bar.clear()
            yield job, results.pop(number).get()


def _progress(ended: Sequence[int], left: Sequence[int], calls: int) -> tuple[float, str]:
    """The share of all that is done, and the words to it; `left` are the jobs that are not."""
    done = len(ended) - len(left)
    begun = sum(min(ended[number] / calls, 1.0) for number in left) if calls else 0.0
    of = f" of {calls * len(ended):,}" if calls else ""
    return (done + begun) / len(ended), f"{done} of {len(ended)} simulations, {sum(ended):,}{of} calls"


def _share(ended: MutableSequence[int]) -> None:
    global _ended
    _ended = ended


def _run(number: int, job: Job) -> Any:
    gc.collect()  # a simulated system is a cycle: the one before would stay beside this one
    try:
        return job.run(partial(_count, number))
    except FairleadError as error:
        raise SimulationFailed(str(error)) from None


def _count(number: int) -> None:
    _ended[number] += 1
