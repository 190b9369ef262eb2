"""Late binding to an engine with a loop of its own: requests wait here, and only those that fit go to the engine.

A request fits if its whole budget of tokens finds pages, if the engine has a place for it in its batch, and if the
engine has less than a step's tokens of prompts to compute. The engine starts what it is given in its next steps, in any
order, and never preempts it. So the policy decides as late as over an engine of this process, requests are charged by
the same rules, and the policy's bound holds for what has been charged. What the engine has computed differs from that
by what is in flight: at most `token_budget` and one prompt of tokens that are charged but not yet computed, and the
tokens that the engine has generated but not yet sent.

An engine that gives a step's tokens to its requests in their order should give each prompt only a part of it, as vLLM
does with `--long-prefill-token-threshold T`, which is to be a quarter of `token_budget`. So a prompt counts as what one
step can take of it. One of which more than T tokens are not cached is a *long miss*: a client has at most one at the
engine, and all together have at most three, so that a part of each step is left for short prompts. An engine that says
that a prompt can take all of a step gets one at a time.
"""

from collections.abc import Sequence

from fairlead.outcomes import FinishReason
from local_worker.core.batch import SampledLogprobs
from local_worker.core.engine_cache import EngineCache
from local_worker.core.limits import BatchLimits
from local_worker.core.plan import Advance
from local_worker.core.policies.classes import ClassedPolicy
from local_worker.core.policies.protocol import QueuePolicy
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request
from serving.cost import Cost

PARTS = 4  # of a step, of which a prompt gets at most one


class ExternalQueue(RequestQueue[EngineCache]):
    """The requests that wait for an engine with a loop of its own, or are at it.

    A long miss that has to wait for another one is *set aside*: the policy decides among the others, and the request is
    no reason to keep a round from them. Otherwise one long prompt would use up a step, and those behind it would use up
    the turns of all others. `told` is the largest part of a prompt in a step, if the engine tells it; 0: no limit.
    """

    def __init__(
        self,
        policy: QueuePolicy | ClassedPolicy,
        cache: EngineCache,
        cost: Cost,
        limits: BatchLimits,
        told: int | None = None,
    ) -> None:
        super().__init__(policy, cache, cost, limits)
        self._part = max(1, limits.token_budget // PARTS)  # T
        self._most_long = PARTS - 1 if told is None or 0 < told <= self._part else 1
        self._missing: dict[Request, int] = {}  # at the engine, no token received -> tokens of its prompt to compute
        self._long: dict[str, Request] = {}  # client -> its long miss among them
        self._refused: list[Request] = []  # long misses that have to wait, as `select` has found
        self._aside: dict[str, dict[Request, None]] = {}  # client -> its requests that are set aside

    @property
    def uncomputed(self) -> int:
        """The number of prompt tokens that the engine was given and may compute in its next step."""
        return sum(min(missing, self._part) for missing in self._missing.values())

    @property
    def choosable(self) -> int:
        """The number of waiting requests among which the policy chooses; see RequestQueue."""
        return len(self.waiting) - sum(map(len, self._aside.values()))

    def select(self, tokens: int, places: int) -> list[Request]:
        """See RequestQueue."""
        if len(self._long) < self._most_long:
            for client in [client for client in self._aside if client not in self._long]:
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
        is_long = len(request.tokens) - self.matched_tokens(request) > self._part
        most = 1 if request.background else self._most_long
        if not self.closed and is_long and (request.client in self._long or len(self._long) >= most):
            self._refused.append(request)
            return None
        extend = super().admit(request)
        if extend is not None:
            missing = self._missing[request] = len(request.tokens) - request.computed
            self._tokens_left += missing - min(missing, self._part)
            if is_long:
                self._long[request.client] = request
        return extend

    def started(self, request: Request) -> None:
        """Record that the engine has sent a token of `request`, and has computed its prompt, therefore."""
        self._missing.pop(request, None)
        if self._long.get(request.client) is request:
            del self._long[request.client]

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
        """See RequestQueue."""
        if request in self._aside.get(request.client, ()):
            self._put_back(request)
        super().abort(request)

    def finish(self, request: Request) -> None:
        """See RequestQueue."""
        super().finish(request)
        self.started(request)

    def check_invariants(self) -> None:
        """Raise AssertionError unless long misses are at the engine, those set aside wait, and what RequestQueue checks
        holds."""
        super().check_invariants()
        assert self._missing.keys() <= self.running.keys(), "a prompt is missing that is not at the engine"
        assert all(self._missing[request] > self._part for request in self._long.values()), "a long miss is short"
        assert len(self._long) <= self._most_long, f"{len(self._long)} long misses at the engine"
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
    ) -> list[Advance]:
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
        return [Advance(request, tokens, finish, logprobs)]

    def take_left(self) -> list[Request]:
        """Return the requests that were at the engine and have ended here since the last call."""
        return self.queue.take_left()

    def check_invariants(self) -> None:
        """Raise AssertionError unless the queue, the requests at the engine, the pages and the accounts agree."""
        running, most = len(self.queue.running), self.queue.limits.max_running
        assert running <= most, f"{running} at the engine"
        self.queue.check_invariants()
