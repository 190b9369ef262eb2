"""Where calls come from: fixed in advance, or each after the answers it depends on."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from simulation.call import SimulatedCall

Next = Callable[[SimulatedCall], Iterable[SimulatedCall]]


class Workload(Protocol):
    """Deterministic: the same seed, the same calls."""

    def first(self) -> Iterable[SimulatedCall]:
        """The calls that wait for nobody, in order of `arrival`; asked for one by one."""

    def ended(self, call: SimulatedCall) -> Iterable[SimulatedCall]:
        """The calls that `call`'s end sets free; their `arrival` is not before it."""


@dataclass(slots=True)
class OpenLoop:
    """Calls at given times, whatever happens to them."""

    calls: list[SimulatedCall]

    def first(self) -> Iterable[SimulatedCall]:
        """See Workload."""
        return sorted(self.calls, key=lambda call: (call.arrival, call.number))

    def ended(self, call: SimulatedCall) -> Iterable[SimulatedCall]:
        """See Workload."""
        return ()


@dataclass(slots=True)
class ClosedLoop:
    """Calls that start programs, and by call what follows its end."""

    starts: list[SimulatedCall] = field(default_factory=list)
    followers: dict[SimulatedCall, Next] = field(default_factory=dict)

    def start(self, call: SimulatedCall, then: Next) -> None:
        """Add a program that begins with `call`."""
        self.starts.append(call)
        self.followers[call] = then

    def follow(self, call: SimulatedCall, then: Next) -> SimulatedCall:
        """Register what follows `call`, which some program is about to make; returns it."""
        self.followers[call] = then
        return call

    def first(self) -> Iterable[SimulatedCall]:
        """See Workload."""
        return sorted(self.starts, key=lambda call: (call.arrival, call.number))

    def ended(self, call: SimulatedCall) -> Iterable[SimulatedCall]:
        """See Workload."""
        then = self.followers.pop(call, None)
        return () if then is None else then(call)
