"""Agents that start at random times and follow recorded sessions; a refused call comes again after a while."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from lab.bench.working_sets.sessions import Session, Turn
from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments
from throttler.core.working_sets import RETRY_SECONDS

SHARED = "tools"  # scopes of blocks that several sessions have in common begin so


@dataclass(slots=True, eq=False)
class Agent:
    """One agent on its way through a session."""

    number: int
    tenant: str
    session: Session
    started: float
    awaited: list[int]  # answers for which each turn still waits
    earliest: list[float]
    followers: dict[int, list[int]]
    left: int
    seen: set[tuple[str, int]] = field(default_factory=set)  # blocks that were in its prompts

    @property
    def name(self) -> str:
        """The name of its interaction."""
        return f"agent-{self.number}"


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """An answered call: `again` are tokens that its interaction had in a prompt before and that no cache held."""

    ended: float
    seconds: float  # to the first token
    prompt: int
    cached: int
    again: int


@dataclass(frozen=True, slots=True)
class FinishedAgent:
    """An agent whose last call was answered."""

    tenant: str
    ended: float
    calls: int


class Agents:
    """A workload: agents begin as a Poisson process for `seconds`, after which no turn follows.

    With `only` the agents of one tenant alone begin, at the same times as beside the others.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        weights: Sequence[float],
        per_second: float,
        seconds: float,
        seed: int = 1,
        only: int | None = None,
    ) -> None:
        self.answered: list[AnsweredCall] = []
        self.finished: list[FinishedAgent] = []
        self.refused = 0
        self._sessions, self._weights = sessions, weights
        self._per_second, self._seconds, self._only = per_second, seconds, only
        self._starts, self._retries = random.Random(seed), random.Random(seed + 1)
        self._segments, self._calls = PromptSegments(), 0
        self._shared: dict[tuple[str, int], int] = {}
        self._own: dict[Agent, dict[tuple[str, int], int]] = {}
        self._turns: dict[SimulatedCall, tuple[Agent, int]] = {}

    def first(self) -> Iterator[SimulatedCall]:
        """See Workload."""
        rng, now, number = self._starts, 0.0, 0
        while (now := now + rng.expovariate(self._per_second)) < self._seconds:
            session, number = rng.choice(self._sessions), number + 1
            [tenant] = rng.choices(range(len(self._weights)), self._weights)
            if self._only in (None, tenant):
                yield self._call(_agent(number, f"tenant-{tenant}", session, now), 0, now)

    def ended(self, call: SimulatedCall) -> Iterable[SimulatedCall]:
        """See Workload."""
        assert call.ended_at is not None
        agent, place = self._turns.pop(call)
        now = call.ended_at
        if not call.completed:
            self.refused += 1
            later = now + RETRY_SECONDS * self._retries.uniform(0.8, 1.2)
            return [self._call(agent, place, later)] if now < self._seconds else ()
        self._answered(agent, agent.session[place], call)
        if not agent.left:
            self.finished.append(FinishedAgent(agent.tenant, now, len(agent.session)))
            del self._own[agent]
        return [self._call(agent, *due) for due in _followers(agent, place, now)] if now < self._seconds else ()

    def _answered(self, agent: Agent, turn: Turn, call: SimulatedCall) -> None:
        keys = _blocks(turn)
        known = next((number for number, key in enumerate(keys) if key not in agent.seen), len(keys))
        again = max(0, known * turn.row.block_tokens - call.cached_tokens)
        agent.seen.update(keys)
        agent.left -= 1
        assert call.ended_at is not None
        latency = call.first_token_latency
        self.answered.append(AnsweredCall(call.ended_at, latency, call.prompt_tokens, call.cached_tokens, again))

    def _call(self, agent: Agent, place: int, arrival: float) -> SimulatedCall:
        self._calls += 1
        turn = agent.session[place]
        call = SimulatedCall(
            number=self._calls,
            client=agent.tenant,
            app=turn.row.app,
            prompt=self._prompt(agent, turn),
            output_tokens=turn.row.output_tokens,
            arrival=arrival,
            interaction=agent.name,
            stage=place,
            last=agent.left == 1,
        )
        self._turns[call] = agent, place
        return call

    def _prompt(self, agent: Agent, turn: Turn) -> list[int]:
        own, prompt = self._own.setdefault(agent, {}), list[int]()
        for key in _blocks(turn):
            tokens = self._shared if key[0].startswith(SHARED) else own
            if key not in tokens:
                tokens[key] = self._segments.token()
            prompt += [tokens[key]] * turn.row.block_tokens
        return prompt + self._segments.fresh(turn.row.input_tokens - len(prompt))


def _agent(number: int, tenant: str, session: Session, now: float) -> Agent:
    followers: dict[int, list[int]] = {}
    for place, turn in enumerate(session):
        for before in turn.after:
            followers.setdefault(before, []).append(place)
    awaited = [len(turn.after) for turn in session]
    return Agent(number, tenant, session, now, awaited, [now] * len(session), followers, len(session))


def _followers(agent: Agent, place: int, now: float) -> Iterator[tuple[int, float]]:
    for later in agent.followers.get(place, ()):
        turn = agent.session[later]
        pause = turn.pause if turn.after[0] == place else 0.0
        agent.earliest[later] = max(agent.earliest[later], now + pause)
        agent.awaited[later] -= 1
        if not agent.awaited[later]:
            yield later, agent.earliest[later]


def _blocks(turn: Turn) -> list[tuple[str, int]]:
    keys = [(blocks.scope, block) for blocks in turn.row.blocks for block in blocks.ids]
    return keys[: turn.row.input_tokens // max(turn.row.block_tokens, 1)]
