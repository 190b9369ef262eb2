"""Simulated clients that keep calls open all the time, or ask at regular intervals."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from lab.loops import ClosedLoop
from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """One client and its calls, which share no prefix; lengths are in tokens and times in seconds."""

    client: str
    prompt: int
    output: int
    open: int = 0  # calls that it keeps open at any time
    every: float = 0.0  # seconds between two calls; 0: only those that it keeps open
    start: float = 0.0


@dataclass(slots=True)
class PartyLoop:
    """A closed loop to which parties and single calls are added; no call begins after `seconds`."""

    seconds: float
    loop: ClosedLoop = field(default_factory=ClosedLoop)
    segments: PromptSegments = field(default_factory=PromptSegments)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def add(self, party: Party) -> None:
        """Add the calls of a party."""
        for number in range(party.open):
            # Calls of one instant would enter in one step, as no client's calls do.
            self.loop.start(self._call(party, party.start + 0.001 * number), self._again(party))
        at = party.start
        while party.every and at < self.seconds:
            self.once(party.client, self.segments.fresh(party.prompt), party.output, at)
            at += party.every

    def once(self, client: str, prompt: list[int], output_tokens: int, at: float) -> None:
        """Add one call, which no other follows."""
        self.loop.start(self._made(client, prompt, output_tokens, at), lambda ended: ())

    def _again(self, party: Party) -> Callable[[SimulatedCall], Iterator[SimulatedCall]]:
        def follow(ended: SimulatedCall) -> Iterator[SimulatedCall]:
            now = ended.arrival + ended.latency
            if now < self.seconds:
                yield self.loop.follow(self._call(party, now), follow)

        return follow

    def _call(self, party: Party, at: float) -> SimulatedCall:
        return self._made(party.client, self.segments.fresh(party.prompt), party.output, at)

    def _made(self, client: str, prompt: list[int], output_tokens: int, at: float) -> SimulatedCall:
        return SimulatedCall(
            number=next(self.numbers), client=client, prompt=prompt, output_tokens=output_tokens, arrival=at
        )


@dataclass(frozen=True, slots=True)
class Parties:
    """The workload of some parties; see WorkloadSpec."""

    parties: tuple[Party, ...]
    seconds: float

    def make(self) -> ClosedLoop:
        """Make the workload; see WorkloadSpec."""
        made = PartyLoop(self.seconds)
        for party in self.parties:
            made.add(party)
        return made.loop
