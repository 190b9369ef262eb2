"""A wall clock of services that a test moves while they run, as no test can set a machine's own.

In processes that import this module all of our code that has imported `time` reads the machine's clock moved by the
seconds in the file that the variable MOVED names. What is not ours, as gRPC with its deadlines, reads the machine's.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

MOVED = "TESTS_CLOCK_MOVED"
OURS = ("fairlead", "gateway", "global_scheduler", "local_worker", "serving", "throttler")


class MovedTime:
    """Stands for the module `time`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time(self) -> float:
        return time.time() + _moved()

    def time_ns(self) -> int:
        return time.time_ns() + _moved() * 1_000_000_000


def move(file: Path, seconds: int) -> None:
    """Set the clocks of all services that read `file` so many seconds ahead of the machine's, or behind it."""
    new = file.with_suffix(".new")
    new.write_text(str(seconds))
    new.replace(file)


def _moved() -> int:
    file = os.environ.get(MOVED)
    return int(Path(file).read_text()) if file else 0


for _name, _module in [*sys.modules.items()]:
    if _name.partition(".")[0] in OURS and vars(_module).get("time") is time:
        vars(_module)["time"] = MovedTime()
