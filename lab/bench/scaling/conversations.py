"""Users with conversations of four turns and a shared system prompt; their number is proportional to the workers."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from lab.loops import ClosedLoop
from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments, output_run

SYSTEM, QUESTION, ANSWER, TURNS = 256, 64, 64, 4


@dataclass(frozen=True, slots=True)
class Conversations:
    """A workload of `calls` calls per worker, at `per_minute` calls a minute and worker, from `users` users in
    total."""

    workers: int
    calls: int
    users: int
    per_minute: float = 120.0

    @property
    def seconds(self) -> float:
        """The seconds within which conversations begin."""
        return self.calls / self.per_minute * 60

    def make(self) -> "ConversationLoop":
        """See WorkloadSpec."""
        return ConversationLoop(self)


class ConversationLoop:
    """A workload of conversations that start at random times; each is created only when it is due."""

    def __init__(self, spec: Conversations) -> None:
        self._spec = spec
        self._loop = ClosedLoop()
        self._segments = PromptSegments()
        self._system = self._segments.fresh(SYSTEM)
        self._rng = random.Random(1)
        self._numbers = 0

    def first(self) -> Iterator[SimulatedCall]:
        """See Workload."""
        spec = self._spec
        users = spec.users
        weights = [4 if user % 8 == 0 else 1 for user in range(users)]
        starts = spec.workers * spec.calls // TURNS
        times = sorted(self._rng.uniform(0, spec.seconds) for _ in range(starts))
        for time_, user in zip(times, self._rng.choices(range(users), weights, k=starts), strict=True):
            prompt = self._system + self._segments.fresh(QUESTION)
            call = self._call(f"user {user}", prompt, time_, 0)
            yield self._loop.follow(call, self._next)

    def ended(self, call: SimulatedCall) -> list[SimulatedCall]:
        """See Workload."""
        return list(self._loop.ended(call))

    def _next(self, ended: SimulatedCall) -> list[SimulatedCall]:
        if ended.stage + 1 == TURNS or not ended.completed:
            return []
        answer = output_run(ended.number, 0, ended.output_tokens)
        prompt = [*ended.prompt, *answer, *self._segments.fresh(QUESTION)]
        now = ended.arrival + ended.latency + self._rng.expovariate(0.5)
        return [self._loop.follow(self._call(ended.client, prompt, now, ended.stage + 1), self._next)]

    def _call(self, client: str, prompt: list[int], arrival: float, stage: int) -> SimulatedCall:
        self._numbers += 1
        return SimulatedCall(
            number=self._numbers,
            client=client,
            prompt=prompt,
            output_tokens=ANSWER,
            arrival=arrival,
            stage=stage,
        )
