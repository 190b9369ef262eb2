"""A few users whose demand exceeds the pool's capacity, so that a fairness bound can be measured between them."""

import random
from dataclasses import dataclass

from lab.loops import OpenLoop
from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments

PREFIX, QUESTION, ANSWER = 256, 64, 64


@dataclass(frozen=True, slots=True)
class Flood:
    """A workload of `calls` calls per worker within one second; every fourth user sends three times as much as the
    others."""

    workers: int
    calls: int
    users: int

    def make(self) -> OpenLoop:
        """Make the calls; those of a user share a prefix."""
        rng, segments = random.Random(1), PromptSegments()
        prefixes = [segments.fresh(PREFIX) for _ in range(self.users)]
        weights = [3 if user % 4 == 0 else 1 for user in range(self.users)]
        count = self.workers * self.calls
        senders = rng.choices(range(self.users), weights, k=count)
        return OpenLoop(
            [
                SimulatedCall(
                    number=number,
                    client=f"user {user}",
                    prompt=prefixes[user] + segments.fresh(QUESTION),
                    output_tokens=ANSWER,
                    arrival=number / count,
                )
                for number, user in enumerate(senders)
            ]
        )
