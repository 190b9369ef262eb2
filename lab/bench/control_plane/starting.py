"""The time that gateway and scheduler need from process start until they are ready."""

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from cli.service_process import ServiceProcess
from cli.stack import Stack
from lab.bench.control_plane.job import cpu_seconds

DEADLINE_SECONDS = 60.0
END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Started:
    """The wall and CPU seconds of one start."""

    wall: float
    cpu: float


def starts(stack: Stack, folder: Path, module: str, ready: str, repeats: int) -> list[Started]:
    """Start processes of `module` beside a running stack, one after the other, until each has logged `ready`."""
    return [_start(stack, folder / f"{module}-{number}.log", module, ready) for number in range(repeats)]


def median(started: list[Started]) -> Started:
    """Return the median of each figure separately."""
    return Started(statistics.median(s.wall for s in started), statistics.median(s.cpu for s in started))


def _start(stack: Stack, log: Path, module: str, ready: str) -> Started:
    args = ["--listen", "127.0.0.1:0"] + (["--scheduler", stack.scheduler] if module == "gateway" else [])
    began = time.monotonic()
    process = ServiceProcess(module, module, args, {"FAIRLEAD_SECRET": stack.secret}, log)
    try:
        process.wait_for(ready, began + DEADLINE_SECONDS)
        return Started(time.monotonic() - began, cpu_seconds(process.pid))
    finally:
        process.terminate()
        process.end(time.monotonic() + END_SECONDS)
