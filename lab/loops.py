"""Workloads of the laboratory: arrivals fixed in advance, or calls that follow the ends of other calls."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from simulation.call import SimulatedCall

Next = Callable[[SimulatedCall], Iterable[SimulatedCall]]


@dataclass(slots=True)
class OpenLoop:
    """A workload of calls at fixed times, independent of earlier outcomes."""

    calls: list[SimulatedCall]

    def first(self) -> Iterable[SimulatedCall]:
        return sorted(self.calls, key=lambda call: (call.arrival, call.number))

    def ended(self, call: SimulatedCall) -> Iterable[SimulatedCall]:
        return ()


@dataclass(slots=True)
class ClosedLoop:
    """A workload of calls that start programs, and for each call a function that returns its followers."""

    starts: list[SimulatedCall] = field(default_factory=list)
    followers: dict[SimulatedCall, Next] = field(default_factory=dict)

    def start(self, call: SimulatedCall, then: Next) -> None:
        """Add a program that begins with `call`; `then` returns what follows its end."""
        self.starts.append(call)
        self.followers[call] = then

    def follow(self, call: SimulatedCall, then: Next) -> SimulatedCall:
        """Register what follows `call`, a later call of a program, and return `call`."""
        self.followers[call] = then
        return call

    def first(self) -> Iterable[SimulatedCall]:
        return sorted(self.starts, key=lambda call: (call.arrival, call.number))

    def ended(self, call: SimulatedCall) -> Iterable[SimulatedCall]:
        then = self.followers.pop(call, None)
        return () if then is None else then(call)
