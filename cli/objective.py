"""A latency objective for a pool, and the number of workers that meets it."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from simulation.what_if.waits import Waits

MEASURES: dict[str, Callable[[Waits], float]] = {
    "mean-ttft": lambda waits: waits.ttft_mean,
    "p99-ttft": lambda waits: waits.ttft_p99,
    "mean-latency": lambda waits: waits.latency_mean,
    "p99-latency": lambda waits: waits.latency_p99,
}
UNITS = {"ms": 0.001, "s": 1.0}  # "ms" first, because it also ends with "s"
MOST_WORKERS = 1024


@dataclass(frozen=True, slots=True)
class Objective:
    """The condition that `measure` of the judged calls is at most `seconds`."""

    measure: str
    seconds: float

    def figure(self, waits: Waits) -> float:
        """Return the measured value in seconds; infinite where calls were refused."""
        return MEASURES[self.measure](waits)

    def is_met(self, waits: Waits) -> bool:
        """Return whether the measured value meets the objective."""
        return self.figure(waits) <= self.seconds


def objective(text: str) -> Objective:
    """Parse an option such as `p99-ttft=2s` or `mean-latency=800ms`."""
    measure, _, time = text.partition("=")
    unit = next((unit for unit in UNITS if time.endswith(unit)), "")
    try:
        seconds = float(time.removesuffix(unit)) * UNITS[unit]
    except (KeyError, ValueError):
        seconds = 0.0
    if measure not in MEASURES or not 0 < seconds < float("inf"):
        known = ", ".join(MEASURES)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form p99-ttft=2s or p99-ttft=800ms; measures: {known}"
        )
    return Objective(measure, seconds)


def fewest(is_met: Callable[[int], bool], first: int) -> int | None:
    """Return the smallest sufficient number of workers, from 1 to MOST_WORKERS, or None if there is none.

    The search tries `first` before any other number. It assumes that more workers are never worse.
    """
    failing, enough = 0, min(first, MOST_WORKERS)
    while not is_met(enough):
        if enough == MOST_WORKERS:
            return None
        failing, enough = enough, min(2 * enough, MOST_WORKERS)
    while enough - failing > 1:
        middle = (failing + enough) // 2
        failing, enough = (failing, middle) if is_met(middle) else (middle, enough)
    return enough
