"""Late binding beside an engine with a loop of its own: requests wait here, and only those that fit go to the engine.

A request fits if its whole budget of tokens finds pages, if the engine has a place for it in its batch, and if the
engine has less than a step's tokens of prompts to compute. The engine starts what it is given in its next steps, in any
order, and never preempts it. So the policy decides as late as over an engine of this process, requests are charged by
the same rules, and the policy's bound holds for what has been charged. What the engine has computed differs from that
by what is in flight: at most `token_budget` and one prompt of tokens that are charged but not yet computed, and the
tokens that the engine has generated but not yet sent.
"""

from collections.abc import Sequence

from fairlead.outcomes import FinishReason
from local_worker.core.batch import SampledLogprobs
from local_worker.core.batch_admission import BatchAdmission
from local_worker.core.engine_cache import EngineCache
from local_worker.core.limits import BatchLimits
from local_worker.core.plan import Advance
from local_worker.core.policies.protocol import QueuePolicy
from local_worker.core.request import Request
from serving.cost import Cost


class LateBinding(BatchAdmission):
    """The owner of every request from `submit` until `received` ends it, or it is aborted or expires."""

    cache: EngineCache

    def __init__(self, policy: QueuePolicy, cache: EngineCache, cost: Cost, limits: BatchLimits) -> None:
        super().__init__(policy, cache, cost, limits)
        self._unstarted: dict[Request, int] = {}  # at the engine, no token received -> tokens of its prompt to compute
        self._others = 0  # number of requests at the engine that are not ours
        self._left: list[Request] = []  # requests that have left since `take_left`

    @property
    def uncomputed(self) -> int:
        """The number of prompt tokens that the engine was given and may not have computed."""
        return sum(self._unstarted.values())

    @property
    def closed(self) -> bool:
        """Whether the engine has no place left, or enough tokens to compute; see StepBudget."""
        return super().closed or len(self._running) + self._others >= self._limits.max_running

    def observe_others(self, requests: int, pages: int) -> None:
        """Record how many requests that are not ours the engine has, and how many pages these hold.

        They take places and pages that our requests cannot have. No client is charged for them.
        """
        self._others = requests
        self.cache.occupied = pages

    def hand_over(self, now: float) -> list[Request]:
        """Return the waiting requests that go to the engine now, as the policy chooses."""
        self.policy.cached(self.cache.take_new())
        self._step_left = self._limits.token_budget - self.uncomputed
        admitted = self.policy.select(self) if self._waiting and not self.closed else []
        self._unstarted |= {request: len(request.tokens) - request.computed for request in admitted}
        self._observe(now)
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
        if request not in self._running:
            return []
        self._unstarted.pop(request, None)
        request.tokens.extend(tokens)
        self._charge(request, len(tokens))
        if finish is not None:
            self._retire(request)
        return [Advance(request, tokens, finish, logprobs)]

    def take_left(self) -> list[Request]:
        """Return the requests that were at the engine and have ended here since the last call."""
        left, self._left = self._left, []
        return left

    def _retire(self, request: Request) -> None:
        self._unstarted.pop(request, None)
        self._left.append(request)
        super()._retire(request)

    def check_invariants(self) -> None:
        """Raise AssertionError unless the queue, the requests at the engine, the pages and the accounts agree."""
        super().check_invariants()
        assert all(request in self._running for request in self._unstarted), "an unstarted request is not at the engine"
        assert self._limits.max_running >= len(self._running), f"{len(self._running)} at the engine"
