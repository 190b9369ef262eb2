"""Open-loop workloads from published parameters: clients that send at given rates, independent of their calls'
outcomes."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from lab.loops import OpenLoop
from serving.cost import WEIGHT_ONE
from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One client with evenly spaced calls, or with Poisson arrivals if `poisson` is set.

    With `rising_to` the rate rises linearly to that value. With `off_after` every second period of that many seconds is
    silent.
    """

    client: str
    per_minute: float
    input_tokens: int = 256
    output_tokens: int = 256
    start: float = 0.0
    stop: float = 600.0
    poisson: bool = False
    rising_to: float | None = None
    off_after: float | None = None
    weight: int = WEIGHT_ONE

    def times(self, rng: random.Random) -> Iterator[float]:
        """Yield the arrival times in seconds."""
        time = self.start
        while True:
            gap = 60.0 / self._rate(time)
            time += rng.expovariate(1 / gap) if self.poisson else gap
            if time >= self.stop:
                return
            if self.off_after is None or (time - self.start) // self.off_after % 2 == 0:
                yield time

    def _rate(self, time: float) -> float:
        if self.rising_to is None:
            return self.per_minute
        return self.per_minute + (self.rising_to - self.per_minute) * (time - self.start) / (self.stop - self.start)


@dataclass(frozen=True, slots=True)
class Streams:
    """A workload of clients that share no prefix."""

    streams: tuple[Stream, ...]
    seed: int = 1

    def make(self) -> OpenLoop:
        """See WorkloadSpec."""
        rng, segments = random.Random(self.seed), PromptSegments()
        arrivals = sorted(
            ((time, number) for number, stream in enumerate(self.streams) for time in stream.times(rng)),
        )
        calls: list[SimulatedCall] = []
        for time, number in arrivals:
            stream = self.streams[number]
            calls.append(
                SimulatedCall(
                    number=len(calls),
                    client=stream.client,
                    prompt=segments.fresh(stream.input_tokens),
                    output_tokens=stream.output_tokens,
                    arrival=time,
                    weight=stream.weight,
                )
            )
        return OpenLoop(calls)
