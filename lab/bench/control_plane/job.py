"""The job that every system runs: prompts, closed-loop callers, and the measurements."""

import asyncio
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

TOKENS = 64
SYSTEM_BYTES = 1024
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Job:
    """A number of calls over concurrent callers; each caller waits for its answer before its next call.

    Callers that begin together stay together: a call's time to the first token is then that of the prompts of all of
    them. `apart` lets them begin evenly over the time that a call takes at the worker, and pause before each call for a
    random part of a step. Without the pause a call begins when a step ends, because that ended the call before it, and
    waits for the end of the next step: the time to the first token is then a number of whole steps, and a delay on the
    way shows as nothing or as a step.
    """

    calls: int
    callers: int
    step_seconds: float  # seconds per token at the worker
    prompt_bytes: int
    tokens: int = TOKENS  # of each answer
    apart: bool = False

    def prompts(self) -> list[str]:
        """Return one prompt per call; all share a prefix of SYSTEM_BYTES."""
        text = random.Random(1)
        letters = "abcdefghijklmnopqrstuvwxyz     "
        system = "".join(text.choices(letters, k=SYSTEM_BYTES))
        return [system + "".join(text.choices(letters, k=self.prompt_bytes - SYSTEM_BYTES)) for _ in range(self.calls)]

    def __str__(self) -> str:
        pace = f"{self.step_seconds * 1e3:g} ms per token" if self.step_seconds else "burst"
        return f"{pace}, apart" if self.apart else pace

    def begins_after(self, caller: int) -> float:
        """Return the seconds after which a caller makes its first call."""
        return self.tokens * self.step_seconds * caller / self.callers if self.apart else 0.0

    def pauses(self, caller: int) -> Iterator[float]:
        """Yield the seconds that a caller waits before each of its calls."""
        dice = random.Random(caller)
        while True:
            yield dice.uniform(0.0, self.step_seconds) if self.apart else 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of a job: wall time, time to each call's first token, CPU time of the processes in between."""

    wall: float
    first: list[float]
    cpu: dict[str, float]

    @property
    def rate(self) -> float:
        """The number of completed calls per second."""
        return len(self.first) / self.wall

    def first_ms(self, part: float) -> float:
        """Return a quantile of the time to the first token, in milliseconds."""
        return sorted(self.first)[min(len(self.first) - 1, int(len(self.first) * part))] * 1e3

    def cpu_ms(self, *names: str) -> float:
        """Return the CPU milliseconds per call of these processes."""
        return sum(self.cpu[name] for name in names) / len(self.first) * 1e3

    @property
    def median_ms(self) -> float:
        """The median time to the first token, in milliseconds."""
        return statistics.median(self.first) * 1e3


Call = Callable[[str], Awaitable[float]]  # a prompt -> seconds until the first token


async def measure(job: Job, call: Call, processes: dict[str, int]) -> Measured:
    """Run the job. `processes` maps the names of the processes whose CPU time counts to their ids."""
    prompts = job.prompts()
    await asyncio.gather(*(call(prompt) for prompt in prompts[: job.callers]))  # connections, caches
    waiting, first = list(reversed(prompts)), []
    before = {name: cpu_seconds(pid) for name, pid in processes.items()}
    began = time.perf_counter()

    async def caller(number: int) -> None:
        await asyncio.sleep(job.begins_after(number))
        pauses = job.pauses(number)
        while waiting:
            prompt = waiting.pop()
            await asyncio.sleep(next(pauses))
            first.append(await call(prompt))

    await asyncio.gather(*map(caller, range(job.callers)))
    wall = time.perf_counter() - began
    return Measured(wall, first, {name: cpu_seconds(pid) - before[name] for name, pid in processes.items()})


def cpu_seconds(pid: int) -> float:
    """Return the user and system time in seconds of a process, to the nanosecond, and of its ended children, to a tick.

    The clock's number is the one that `clock_getcpuclockid` of the C library returns.
    """
    children = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
    return time.clock_gettime(~pid << 3 | 2) + sum(map(int, children)) / TICKS
