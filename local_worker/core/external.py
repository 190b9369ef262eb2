"""Late binding to an engine with a loop of its own: requests wait here, and only those that fit go to the engine.

A request fits if its whole budget of tokens finds pages, if the engine has a place for it in its batch, and if the
engine has less than a step's tokens of prompts to compute. The engine starts what it is given in its next steps, in any
order, and never preempts it. So the policy decides as late as over an engine of this process, requests are charged by
the same rules, and the policy's bound holds for what has been charged. What the engine has computed differs from that
by what is in flight: at most `token_budget` and one prompt of tokens that are charged but not yet computed, and the
tokens that the engine has generated but not yet sent.

A prompt counts as what one step can take of it, and long misses (serving.core.long_misses) are few at a time. How many,
and what a step takes of one, depends on the engine: see LongPrompts.
"""

from collections.abc import Sequence
from enum import Enum, auto

from fairlead.outcomes import FinishReason
from local_worker.core.batch import SampledLogprobs
from local_worker.core.engine_cache import EngineCache
from local_worker.core.events import RequestTokens
from local_worker.core.limits import BatchLimits
from local_worker.core.policies.protocol import ClassedPolicy, QueuePolicy
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request
from serving.core.long_misses import PARTS, LongMisses
from serving.cost import Cost


class LongPrompts(Enum):
    """How an engine computes a long miss beside other prompts."""

    PARTS = auto()  # it gives a prompt at most T tokens of a step, as vLLM does with `--long-prefill-token-threshold T`
    # It gives a prompt whole steps, and caches prefixes. A long miss is a chain of requests for growing prefixes with
    # one token of output: the engine computes what a link adds. Together links take three quarters of a step.
    CHAIN = auto()
    WHOLE = auto()  # it gives a prompt whole steps: one long miss at a time

    @classmethod
    def of(cls, told: int | None, caches_prefixes: bool, token_budget: int) -> "LongPrompts":
        """Return the way of an engine that says that `told` is the largest part of a prompt in a step (0: no limit,
        None: it does not say), and with `caches_prefixes` that later requests find the prefixes of earlier ones."""
        if told is not None and 0 < told <= token_budget // PARTS:
            return cls.PARTS
        if caches_prefixes:
            return cls.CHAIN
        return cls.PARTS if told is None else cls.WHOLE


class ExternalQueue(RequestQueue[EngineCache]):
    """The requests that wait for an engine with a loop of its own, or are at it.

    A long miss that has to wait for another one is *set aside*: the policy decides among the others, and the request is
    no reason to keep a round from them. Otherwise one long prompt would use up a step, and those behind it would use up
    the turns of all others.
    """

    def __init__(
        self,
        policy: QueuePolicy | ClassedPolicy,
        cache: EngineCache,
        cost: Cost,
        limits: BatchLimits,
        long_prompts: LongPrompts = LongPrompts.PARTS,
    ) -> None:
        super().__init__(policy, cache, cost, limits)
        self._long_prompts = long_prompts
        most = 1 if long_prompts is LongPrompts.WHOLE else PARTS - 1
        self._misses = LongMisses[Request](limits.token_budget, most)
        self._refused: list[Request] = []  # long misses that have to wait, as `select` has found
        self._aside: dict[str, dict[Request, None]] = {}  # client -> its requests that are set aside

    @property
    def uncomputed(self) -> int:
        """The number of prompt tokens that the engine was given and may compute in its next step."""
        return self._misses.uncomputed

    @property
    def choosable(self) -> int:
        """The number of waiting requests among which the policy chooses; see RequestQueue."""
        return len(self.waiting) - sum(map(len, self._aside.values()))

    def select(self, tokens: int, places: int) -> list[Request]:
        if len(self._misses) < self._misses.most:
            for client in [client for client in self._aside if not self._misses.has(client)]:
                self._put_back(min(self._aside[client], key=lambda waiting: (waiting.background, waiting.arrival)))
        admitted = super().select(tokens, places)
        while self._refused:
            self._set_aside()
            if not self.closed and self.choosable:
                admitted += self.policy.select(self)
        return admitted

    def _set_aside(self) -> None:
        for request in self._refused:
            self._aside.setdefault(request.client, {})[request] = None
            policy = self.policy_of(request)
            policy.accounts.set_aside(request)
            policy.withdrawn(request)
        self._refused.clear()

    def admit(self, request: Request) -> int | None:
        """Count for the next step only what it can take of the prompt; refuse a long miss that has to wait for another
        one. See StepBudget."""
        missing = len(request.tokens) - self.matched_tokens(request)
        most = 1 if request.background else self._misses.most
        if not self.closed and self._misses.is_long(missing) and self._misses.is_closed(request.client, most):
            self._refused.append(request)
            return None
        extend = super().admit(request)
        if extend is not None:
            missing = len(request.tokens) - request.computed
            most = self._most_taken(len(self._misses) + 1)
            counted = min(missing, most) if self._misses.is_long(missing) else missing
            self._misses.enter(request, request.client, missing, counted)
            self._tokens_left += missing - counted
        return extend

    def _most_taken(self, long: int) -> int:
        """Return how many tokens of a prompt a step takes at most, where the engine has so many long misses."""
        if self._long_prompts is not LongPrompts.CHAIN:
            return self._misses.part
        block = self.cache.block_tokens
        return max(block, (PARTS - 1) * self._misses.part // max(1, long) // block * block)

    def next_link(self, request: Request) -> int | None:
        """Return the number of leading tokens of `request` that the engine is to compute next, before it is given the
        request itself; None: it is given that now. The prompt is computed as far as the last link, if there was one."""
        if self._long_prompts is not LongPrompts.CHAIN or request not in self.running:
            return None
        missing, most = len(request.tokens) - request.computed, self._most_taken(len(self._misses))
        is_last = missing <= most or not self._misses.is_long(missing)
        self._misses.count(request, missing if is_last else most)
        return None if is_last else request.computed + most

    def linked(self, request: Request, stop: int) -> None:
        """Record that the engine has computed the first `stop` tokens of `request`, which may have left."""
        request.computed = stop

    def started(self, request: Request) -> None:
        """Record that the engine has sent a token of `request`, and has computed its prompt, therefore."""
        self._misses.leave(request, request.client)

    def _put_back(self, request: Request) -> None:
        """Let the policy choose `request`, which was set aside, in its old place."""
        aside = self._aside[request.client]
        del aside[request]
        if not aside:
            del self._aside[request.client]
        self.cache.match(request)
        policy = self.policy_of(request)
        policy.accounts.put_back(request)
        policy.preempted(request)

    def abort(self, request: Request) -> None:
        if request in self._aside.get(request.client, ()):
            self._put_back(request)
        super().abort(request)

    def finish(self, request: Request) -> None:
        super().finish(request)
        self.started(request)

    def check_invariants(self) -> None:
        """Raise AssertionError unless prompts that are missing are at the engine, those set aside wait, and what
        RequestQueue checks holds."""
        super().check_invariants()
        self._misses.check_invariants(self.running)
        aside = [request for requests in self._aside.values() for request in requests]
        assert all(request in self.waiting for request in aside), "a request is set aside that does not wait"


class ExternalBatch:
    """The requests of `queue` that are at the engine."""

    def __init__(self, queue: ExternalQueue) -> None:
        self.queue = queue
        self._others = 0  # number of requests at the engine that are not ours

    def observe_others(self, requests: int, pages: int) -> None:
        """Record how many requests that are not ours the engine has, and how many pages these hold.

        They take places and pages that our requests cannot have. No client is charged for them.
        """
        self._others = requests
        self.queue.cache.occupied = pages

    def hand_over(self, now: float) -> list[Request]:
        """Return the waiting requests that go to the engine now, as the policy chooses."""
        queue, limits = self.queue, self.queue.limits
        queue.note_cached_blocks()
        admitted = queue.select(
            tokens=limits.token_budget - queue.uncomputed,
            places=limits.max_running - len(queue.running) - self._others,
        )
        queue.observe(now)
        return admitted

    def received(
        self,
        request: Request,
        tokens: Sequence[int],
        finish: FinishReason | None,
        logprobs: Sequence[SampledLogprobs] = (),
    ) -> list[RequestTokens]:
        """Append and charge `tokens`, which the engine has generated; end the request if there is a reason to `finish`.

        Return the progress; nothing if the request has left meanwhile.
        """
        if request not in self.queue.running:
            return []
        self.queue.started(request)
        request.tokens.extend(tokens)
        self.queue.charge(request, len(tokens))
        if finish is not None:
            self.queue.finish(request)
        return [RequestTokens(request, tokens, finish, logprobs)]

    def check_invariants(self) -> None:
        """Raise AssertionError unless the queue, the requests at the engine, the pages and the accounts agree."""
        running, most = len(self.queue.running), self.queue.limits.max_running
        assert running <= most, f"{running} at the engine"
        self.queue.check_invariants()
