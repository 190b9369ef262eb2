"""A simulation that can run anywhere: here, or in another process."""

from collections.abc import Callable
from typing import Any, Protocol

Ended = Callable[[], None]


class SimulationJob(Protocol):
    """One simulation: deterministic, picklable, and equal to another job exactly when its result would be."""

    def __hash__(self) -> int:
        """Equal jobs are run once, whichever items ask for them."""

    def run(self, ended: Ended | None = None) -> Any:
        """The result, small enough to be sent to another process; `ended` is told of each call that is over."""
