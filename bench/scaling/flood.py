"""A few users who all want more than the pool has: between them a fairness bound can be measured."""

import random
from dataclasses import dataclass

from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments
from simulation.workload import OpenLoop

PREFIX, QUESTION, ANSWER = 256, 64, 64


@dataclass(frozen=True, slots=True)
class Flood:
    """`calls` per worker within a second; every fourth of the `users` sends three times as much as the others."""

    workers: int
    calls: int
    users: int

    def make(self) -> OpenLoop:
        """Each user's calls share a prefix."""
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
