"""A workload that ends at a given time, and the limits that its callers give."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from simulation.call import SimulatedCall
from simulation.run import WorkloadSpec
from simulation.workload import Workload


@dataclass(frozen=True, slots=True)
class Window:
    """The calls of `workload` that begin within `seconds`; those that are open then end.

    With a `context` no caller gives a limit: a call reserves the rest of so many tokens, as at the HTTP front.
    """

    workload: WorkloadSpec
    seconds: float
    context: int | None = None

    def make(self) -> "_Window":
        """Make the workload; see WorkloadSpec."""
        return _Window(self, self.workload.make())


@dataclass(frozen=True, slots=True)
class _Window:
    spec: Window
    workload: Workload

    def first(self) -> Iterator[SimulatedCall]:
        """See Workload."""
        return self._within(self.workload.first())

    def ended(self, call: SimulatedCall) -> Iterator[SimulatedCall]:
        """See Workload."""
        return self._within(self.workload.ended(call))

    def _within(self, calls: Iterable[SimulatedCall]) -> Iterator[SimulatedCall]:
        for call in calls:
            if call.arrival >= self.spec.seconds:
                continue
            call.deadline = self.spec.seconds
            if self.spec.context is not None:
                call.unused_tokens = max(0, self.spec.context - call.prompt_tokens - call.output_tokens)
            yield call
