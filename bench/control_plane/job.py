"""The same job for every system: prompts, closed-loop callers, and what is measured."""

import asyncio
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

TOKENS = 64
PROMPT_BYTES = 8192
SYSTEM_BYTES = 1024
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Job:
    """So many calls over so many callers, each waiting for its answer before the next call."""

    calls: int
    callers: int
    step_seconds: float  # per token, at the worker

    def prompts(self) -> list[str]:
        """One each; all begin alike."""
        text = random.Random(1)
        letters = "abcdefghijklmnopqrstuvwxyz     "
        system = "".join(text.choices(letters, k=SYSTEM_BYTES))
        return [system + "".join(text.choices(letters, k=PROMPT_BYTES - SYSTEM_BYTES)) for _ in range(self.calls)]

    def __str__(self) -> str:
        pace = f"{self.step_seconds * 1e3:g} ms per token" if self.step_seconds else "burst"
        return f"{self.callers} callers, {pace}"


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds: wall, until each call's first token, CPU of the processes in between."""

    wall: float
    first: list[float]
    cpu: dict[str, float]

    @property
    def rate(self) -> float:
        """Calls per second."""
        return len(self.first) / self.wall

    def first_ms(self, part: float) -> float:
        """A quantile of the time to the first token."""
        return sorted(self.first)[min(len(self.first) - 1, int(len(self.first) * part))] * 1e3

    def cpu_ms(self, *names: str) -> float:
        """Per call, of those processes."""
        return sum(self.cpu[name] for name in names) / len(self.first) * 1e3

    @property
    def median_ms(self) -> float:
        """Of the time to the first token."""
        return statistics.median(self.first) * 1e3


Call = Callable[[str], Awaitable[float]]  # a prompt -> seconds until the first token


async def measure(job: Job, call: Call, processes: dict[str, int]) -> Measured:
    """Run the job; `processes`: name -> process id, of those whose CPU counts."""
    prompts = job.prompts()
    await asyncio.gather(*(call(prompt) for prompt in prompts[: job.callers]))  # connections, caches
    waiting, first = list(reversed(prompts)), []
    before = {name: cpu_seconds(pid) for name, pid in processes.items()}
    began = time.perf_counter()

    async def caller() -> None:
        while waiting:
            first.append(await call(waiting.pop()))

    await asyncio.gather(*(caller() for _ in range(job.callers)))
    wall = time.perf_counter() - began
    return Measured(wall, first, {name: cpu_seconds(pid) - before[name] for name, pid in processes.items()})


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS
