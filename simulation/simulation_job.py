"""The interface of a simulation that can run in this process or in another one."""

from collections.abc import Callable
from typing import Any, Protocol

Ended = Callable[[], None]


class SimulationJob(Protocol):
    """A deterministic, picklable unit of simulation. Two jobs are equal exactly when their results are equal."""

    def __hash__(self) -> int:
        """Return equal values for equal jobs; equal jobs are run once, even if several items need their result."""

    def run(self, ended: Ended | None = None) -> Any:
        """Return the result, which is small enough to send to another process; call `ended` at the end of each call."""
