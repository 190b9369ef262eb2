"""Users that keep calls open all the time, on one A100 with a small KV cache."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, cycle

from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments
from simulation.workload import ClosedLoop

PREFIX_TOKENS, NEW_TOKENS = 512, 64


@dataclass(frozen=True, slots=True)
class Flow:
    """One user's calls: `parallel` chains of them, in which a call follows the end of the last one.

    The calls of a chain generate the numbers of tokens `outputs` in turn; each reserves `unused` more.
    """

    parallel: int
    outputs: tuple[int, ...]
    unused: int = 0


@dataclass(frozen=True, slots=True)
class TwoFlows:
    """Two users, of which the first floods the worker. All calls of a user begin with the same tokens."""

    first: Flow
    second: Flow

    def make(self) -> ClosedLoop:
        """Make the workload; see WorkloadSpec."""
        return _Loop(self).loop


@dataclass(slots=True)
class _Loop:
    flows: TwoFlows
    loop: ClosedLoop = field(default_factory=ClosedLoop)
    segments: PromptSegments = field(default_factory=PromptSegments)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        for client, flow in (("first", self.flows.first), ("second", self.flows.second)):
            prefix = self.segments.fresh(PREFIX_TOKENS)
            for _ in range(flow.parallel):
                outputs = cycle(flow.outputs)
                first = self._call(client, flow, prefix, outputs, 0.0)
                self.loop.start(first, self._then(client, flow, prefix, outputs))

    def _then(
        self, client: str, flow: Flow, prefix: list[int], outputs: Iterator[int]
    ) -> Callable[[SimulatedCall], Iterator[SimulatedCall]]:
        def then(ended: SimulatedCall) -> Iterator[SimulatedCall]:
            after = self._call(client, flow, prefix, outputs, ended.arrival + ended.latency)
            yield self.loop.follow(after, self._then(client, flow, prefix, outputs))

        return then

    def _call(
        self, client: str, flow: Flow, prefix: list[int], outputs: Iterator[int], arrival: float
    ) -> SimulatedCall:
        return SimulatedCall(
            number=next(self.numbers),
            client=client,
            prompt=[*prefix, *self.segments.fresh(NEW_TOKENS)],
            output_tokens=next(outputs),
            unused_tokens=flow.unused,
            arrival=arrival,
        )
