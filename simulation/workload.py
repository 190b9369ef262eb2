"""The source of a run's calls."""

from collections.abc import Iterable
from typing import Protocol

from simulation.call import SimulatedCall


class Workload(Protocol):
    """A deterministic source of calls: equal seeds give equal calls."""

    def first(self) -> Iterable[SimulatedCall]:
        """Yield the calls that wait for no other call, in order of `arrival`; they are consumed one by one."""

    def ended(self, call: SimulatedCall) -> Iterable[SimulatedCall]:
        """Return the calls that the end of `call` releases; their `arrival` is not before it."""
