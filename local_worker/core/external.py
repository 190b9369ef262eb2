"""Late binding to an engine with a loop of its own: requests wait here, and only those that fit go to the engine.

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
from local_worker.core.engine_cache import EngineCache
from local_worker.core.plan import Advance
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request


class ExternalBatch:
    """The requests of `queue` that are at the engine."""

    def __init__(self, queue: RequestQueue[EngineCache]) -> None:
        self.queue = queue
        self._unstarted: dict[Request, int] = {}  # at the engine, no token received -> tokens of its prompt to compute
        self._others = 0  # number of requests at the engine that are not ours

    @property
    def uncomputed(self) -> int:
        """The number of prompt tokens that the engine was given and may not have computed."""
        running = self.queue.running
        return sum(tokens for request, tokens in self._unstarted.items() if request in running)

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
            tokens=limits.token_budget - self.uncomputed,
            places=limits.max_running - len(queue.running) - self._others,
        )
        self._unstarted |= {request: len(request.tokens) - request.computed for request in admitted}
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
        self._unstarted.pop(request, None)
        request.tokens.extend(tokens)
        self.queue.charge(request, len(tokens))
        if finish is not None:
            self.queue.finish(request)
        return [Advance(request, tokens, finish, logprobs)]

    def take_left(self) -> list[Request]:
        """Return the requests that were at the engine and have ended here since the last call."""
        left = self.queue.take_left()
        for request in left:
            self._unstarted.pop(request, None)
        return left

    def check_invariants(self) -> None:
        """Raise AssertionError unless the queue, the requests at the engine, the pages and the accounts agree."""
        running, most = len(self.queue.running), self.queue.limits.max_running
        assert running <= most, f"{running} at the engine"
        self.queue.check_invariants()
