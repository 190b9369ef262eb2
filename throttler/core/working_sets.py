"""Agents' working sets: which new interactions a pool's memory can take.

The turns of an agent need the KV cache of its turns before. Where the contexts of all interactions in progress do not
fit into the memory of the pool, each turn computes again what the last one left, and the pool does less work for
everybody. Hence an interaction has a *claim* on as many tokens as it will probably come back with, its *footprint*. A
new interaction is admitted while the claims fit; calls of an interaction that was admitted always pass.

- The footprint is the largest context of its newest calls, or the contexts of its calls in flight together, without
  the tokens that the app's interactions usually have in common. A young interaction counts as its app's mean one.
- A claim ends when its interaction closes, and rests while the interaction is idle: when it has paused for longer than
  its app usually does. What is opened and left therefore holds no memory.
- Free memory goes to whoever comes, but not past somebody who waits below his part (`throttler.core.memory_parts`). A
  tenant waits below its part for LONGEST_WAIT at most, even where the claims of others never end.
- Gateways tell each other their claims, an interaction counting once, and between two exchanges each admits one new
  interaction, or its part of the free memory: beyond the limit go one footprint per other gateway at most.
- The claims are limited from the first overload on, to ROOM of the memory; beyond, up to all of it, enter those that
  stay within their parts of PARTS of it, whatever others have borrowed. As long as the pool is not overloaded the
  limits grow: where computing contexts again is cheap, their memory need not hold back anybody.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import NamedTuple

from serving.names import tenant_of
from throttler.core.habits import PAUSES, AppHabits, Habits
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.memory_parts import MICRO, MemoryParts, Path

ROOM = 0.65  # of the memory: for whoever comes
PARTS = 0.9  # of the memory: divided; the rest is for calls without an interaction, and for unequal workers
GROWTH_SECONDS = 1800.0  # without overload after which the limit has grown by the factor e
RETRY_SECONDS = 5.0  # after which a refused client asks again, unless memory is likely to be free earlier
SOONEST_RETRY = 1.0
MOST_PAUSES = 64  # that are looked at, to tell when memory is likely to be free
PATIENCE = 3 * RETRY_SECONDS  # how long a refused client counts as waiting
LONGEST_WAIT = 300.0  # seconds that a tenant waits below its part before one interaction is admitted beyond the limit
# Calls in a group: the newest group and the one before count. Sub-agents may have smaller contexts than the agent that
# waits for them.
GROUP = 8
LEARNED = 4  # one of so many pauses of an interaction is learned


class PoolMemory(NamedTuple):
    """The pool of a call's model: the tokens of KV cache that its workers have together, and whether it is overloaded.

    0 tokens mean that they are not known; then nothing is refused.
    """

    tokens: int
    overloaded: bool


class MemoryRefusal(NamedTuple):
    """Why a new interaction is not admitted, for `retry_after` seconds; all claims have at most `limit` tokens with
    it."""

    reason: str
    retry_after: float
    limit: int


class SharedClaim(NamedTuple):
    """One gateway's claim as others are told: a digest of the interaction's key, its client, weight and tokens."""

    digest: int
    client: str
    weight: int
    tokens: int


class ClaimsView(NamedTuple):
    """What one gateway tells others: its claims that do not rest, and clients that wait, with their weights."""

    claims: list[SharedClaim]
    waiting: list[tuple[str, int]]


class Context(NamedTuple):
    """What a completed call leaves: its tokens, those of prompt and output, and how many of them it found cached."""

    tokens: int
    cached: int


@dataclass(slots=True, eq=False)
class _Claim:
    key: InteractionKey
    path: Path
    habits: AppHabits
    tokens: int = 0
    rests: bool = True
    in_flight: int = 0
    prompts: int = 0  # tokens of the prompts in flight
    paused: float = -math.inf  # when the latest call ended
    idle_at: float = -math.inf  # infinite while a call is in flight
    completed: int = 0
    largest: int = 0  # context of the newest group of calls
    largest_before: int = 0  # of the group before
    digest: int = 0  # of the key; 0 until other gateways are told


@dataclass(slots=True, eq=False)
class _Pauses:
    """Pauses after which claims rest that are equally long, the oldest first; some are over already.

    Two queues, because the garbage collector would look at a pair for each pause.
    """

    begun: deque[float] = field(default_factory=deque)
    claims: deque[_Claim] = field(default_factory=deque)


class WorkingSets:
    """The claims of the interactions in progress on one model's pool, to which `gateways` admit interactions."""

    def __init__(self, habits: Habits, gateways: int = 1) -> None:
        self.parts = MemoryParts()
        self._habits = habits
        self._claims: dict[InteractionKey, _Claim] = {}
        self._pausing = {pause: _Pauses() for pause in PAUSES}
        self._growth = 1.0
        self._looked_at: float | None = None  # time of the latest look at the overload, from the first overload on
        self._latest_memory: int | None = None
        self._gateways = gateways
        self._new_tokens = 0  # claims of interactions that were admitted since other gateways were told
        self._waiting: dict[str, tuple[int, float]] = {}  # clients that wait here -> their weight, and until when
        self._remote: dict[Path, int] = {}  # tokens that other gateways' interactions hold, by path
        self._remote_waiting: dict[Path, None] = {}

    def refusal(
        self, key: InteractionKey, share: float, prompt_tokens: int, pool: PoolMemory, now: float
    ) -> MemoryRefusal | None:
        """Return why a new interaction is not admitted now, with which its client counts as waiting; None: it is."""
        memory = self._latest_memory = self._memory(pool, now)
        if memory is None or key in self._claims:
            return None
        divided = int(PARTS * memory)
        for pause in PAUSES:
            self._rest(pause, now)
        habits, path = self._habits.of(tenant_of(key.client), key.app), _path(key, share)
        tokens = max(prompt_tokens - habits.common_tokens, habits.mean_footprint)
        held = self.parts.held
        limit = memory if self.parts.is_within(path, tokens, divided, now) else int(ROOM * memory)
        part = (limit - held + self._new_tokens) // self._gateways - self._new_tokens
        fits = not held or (held + tokens <= limit and (tokens <= part or not self._new_tokens))
        if fits and not self.parts.must_yield(path, divided, now):
            return None
        longest = LONGEST_WAIT - self.parts.waited(path[0][0], now)
        if longest <= 0:
            return None
        self.parts.wait(path, divided, now, now + PATIENCE)
        self._waiting.pop(key.client, None)
        self._waiting[key.client] = path[0][1], now + PATIENCE
        used = f"{held:,} of {memory:,} tokens of the pool's memory are held by interactions in progress"
        if limit < memory:
            used += f", and beyond {limit:,} enter only those that stay within their parts"
        if fits:
            reason = f"others below their parts of it wait: {used}"
            return MemoryRefusal(reason, min(RETRY_SECONDS, max(SOONEST_RETRY, longest)), limit)
        reason = f"a new interaction of {tokens:,} tokens does not fit: {used}"
        free = self._free_in(held + tokens - limit, now)
        return MemoryRefusal(reason, max(SOONEST_RETRY, min(free, longest)), limit)

    def _free_in(self, tokens: int, now: float) -> float:
        """Return in how many seconds claims of `tokens` rest if none of those that pause goes on, or RETRY_SECONDS."""
        ends = merge(*(_ends(pauses, pause) for pause, pauses in self._pausing.items()), key=itemgetter(0))
        for end, claim in islice(ends, MOST_PAUSES):
            if end >= now + RETRY_SECONDS:
                break
            if claim.idle_at == end and not claim.rests:
                tokens -= claim.tokens
                if tokens <= 0:
                    return end - now
        return RETRY_SECONDS

    def admitted(self, key: InteractionKey, share: float, prompt_tokens: int, now: float) -> None:
        """Count an admitted call of an interaction."""
        claim = self._claims.get(key)
        is_new = claim is None
        if claim is None:
            habits = self._habits.of(tenant_of(key.client), key.app)
            claim = self._claims[key] = _Claim(key, _path(key, share), habits)
        elif not claim.in_flight and claim.completed % LEARNED == 1:
            claim.habits.paused(now - claim.paused)
        claim.in_flight += 1
        claim.prompts += prompt_tokens
        if now >= claim.idle_at or claim.prompts > claim.tokens:
            self._resize(claim)
        if is_new:
            self._new_tokens += claim.tokens
            self.parts.got(claim.path)  # it holds something now: others of its tenant that wait are not forgotten
            self._waiting.pop(key.client, None)
        claim.idle_at = math.inf

    def ended(self, key: InteractionKey, prompt_tokens: int, context: Context | None, now: float) -> None:
        """Count the end of an admitted call, which had `prompt_tokens` at its admission; `context` if it completed."""
        claim = self._claims[key]
        claim.in_flight -= 1
        claim.prompts -= prompt_tokens
        habits = claim.habits
        if context is not None:
            if not claim.completed:
                habits.began(context.cached)
            if claim.completed % GROUP == 0:
                claim.largest_before, claim.largest = claim.largest, 0
            claim.completed += 1
            if context.tokens > claim.largest:
                claim.largest = context.tokens
        if not claim.completed and not claim.in_flight:
            self._drop(claim)
            return
        shown = self._resize(claim)
        if context is not None:
            habits.held(shown)
        if not claim.in_flight:
            pause = habits.usual_pause
            claim.paused, claim.idle_at = now, now + pause
            pausing = self._pausing[pause]
            pausing.begun.append(now)
            pausing.claims.append(claim)
            self._rest(pause, now)

    def closed(self, key: InteractionKey) -> None:
        """Drop the claim of an interaction that has closed; one that was opened again under its name keeps it."""
        claim = self._claims.get(key)
        if claim is not None and not claim.in_flight:
            self._drop(claim)

    def view(self, now: float) -> ClaimsView:
        """Return what other gateways are told now. O(claims)."""
        for pause in PAUSES:
            self._rest(pause, now)
        self._new_tokens = 0
        self._waiting = {client: waits for client, waits in self._waiting.items() if waits[1] > now}
        claims = [
            SharedClaim(_digest(claim), claim.key.client, claim.path[0][1], claim.tokens)
            for claim in self._claims.values()
            if not claim.rests
        ]
        return ClaimsView(claims, [(client, weight) for client, (weight, _) in self._waiting.items()])

    def replace_remote(self, views: Sequence[ClaimsView], now: float) -> None:
        """Replace what the other gateways told, each by one of `views`. An interaction of which several tell counts
        once, as here if it has a claim here. O(claims)."""
        here = {_digest(claim) for claim in self._claims.values() if not claim.rests}
        largest: dict[int, SharedClaim] = {}
        for claim in chain.from_iterable(view.claims for view in views):
            known = largest.get(claim.digest)
            if claim.digest not in here and (known is None or known.tokens < claim.tokens):
                largest[claim.digest] = claim
        remote: dict[Path, int] = {}
        for claim in largest.values():
            path = _weighted_path(claim.client, claim.weight)
            remote[path] = remote.get(path, 0) + claim.tokens
        for path in {**self._remote, **remote}:
            if change := remote.get(path, 0) - self._remote.get(path, 0):
                self.parts.change(path, change)
        self._remote, self._gateways = remote, 1 + len(views)
        waiting = chain.from_iterable(view.waiting for view in views)
        before, self._remote_waiting = self._remote_waiting, {_weighted_path(*each): None for each in waiting}
        for path in before:
            if path not in self._remote_waiting and path[-1][0] not in self._waiting:
                self.parts.got(path)
        if self._latest_memory is not None:
            for path in self._remote_waiting:
                self.parts.wait(path, int(PARTS * self._latest_memory), now, now + PATIENCE)

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when claims and sums contradict each other."""
        self.parts.check_invariants()
        active = [claim for claim in self._claims.values() if not claim.rests]
        own, remote = sum(claim.tokens for claim in active), sum(self._remote.values())
        assert self.parts.held == own + remote, f"{self.parts.held}, not {own} and {remote}"
        for pauses in self._pausing.values():
            assert list(pauses.begun) == sorted(pauses.begun), "pauses are out of order"
        pausing = chain.from_iterable(zip(each.begun, each.claims, strict=True) for each in self._pausing.values())
        held = {claim for since, claim in pausing if claim.paused == since}  # never iterated
        for claim in self._claims.values():
            assert claim.tokens > 0, f"{claim.key}: claims nothing"
            assert claim.in_flight or claim.rests or claim in held, f"{claim.key}: would hold memory for ever"
            assert not (claim.in_flight and claim.rests), f"{claim.key}: rests with {claim.in_flight} in flight"

    def _memory(self, pool: PoolMemory, now: float) -> int | None:
        """Return to how many tokens of memory claims are limited, or None without a limit."""
        if pool.overloaded:
            self._growth = 1.0
        elif self._looked_at is not None:
            self._growth = min(self._growth * (1 + (now - self._looked_at) / GROWTH_SECONDS), 1e6)
        if pool.overloaded or self._looked_at is not None:
            self._looked_at = now
        if not pool.tokens or self._looked_at is None:
            return None
        return int(self._growth * pool.tokens)

    def _rest(self, pause: float, now: float) -> None:
        """Let the claims rest whose interactions have paused for `pause` seconds, if that is longer than usual."""
        pausing = self._pausing[pause]
        while pausing.begun and now >= pausing.begun[0] + pause:
            since, claim = pausing.begun.popleft(), pausing.claims.popleft()
            if claim.paused == since and now >= claim.idle_at and not claim.rests:
                claim.rests = True
                self.parts.change(claim.path, -claim.tokens)

    def _resize(self, claim: _Claim) -> int:
        """Set the claim to the footprint, also one that rested; return what the interaction itself has shown of it."""
        habits = claim.habits
        shown = max(0, max(claim.prompts, claim.largest, claim.largest_before) - habits.common_tokens)
        tokens = max(1, shown, habits.mean_footprint)
        change = tokens if claim.rests else tokens - claim.tokens
        claim.tokens, claim.rests = tokens, False
        if change:
            self.parts.change(claim.path, change)
        return shown

    def _drop(self, claim: _Claim) -> None:
        del self._claims[claim.key]
        if not claim.rests:
            claim.rests = True
            self.parts.change(claim.path, -claim.tokens)


def _ends(pauses: _Pauses, pause: float) -> Iterator[tuple[float, _Claim]]:
    return ((since + pause, claim) for since, claim in zip(pauses.begun, pauses.claims, strict=True))


def _path(key: InteractionKey, share: float) -> Path:
    return _weighted_path(key.client, max(1, round(share * MICRO)))


def _weighted_path(client: str, weight: int) -> Path:
    return (tenant_of(client), weight), (client, 1)


def _digest(claim: _Claim) -> int:
    if not claim.digest:
        claim.digest = int.from_bytes(blake2b("\0".join(claim.key).encode(), digest_size=7).digest()) or 1
    return claim.digest
