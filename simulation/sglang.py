"""How SGLang batches (DLPM section 6.1 runs on it): a step takes in no more new prompts than it can compute.

What is left waits in the queue, where its order can still change and its prefix may be cached meanwhile by whoever went
before.
"""

from collections.abc import Collection

from fairlead.cost import Cost
from local_worker.core.batcher import Limits, Plan
from local_worker.core.policies.protocol import QueuePolicy
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.request import Request
from simulation.decode_runs import RunBatcher


class SglangBatcher(RunBatcher):
    """Looks at the queue after a prefill and after every `decode_run` decoding steps."""

    def __init__(
        self,
        policy: QueuePolicy,
        cache: PrefixCache,
        cost: Cost,
        limits: Limits,
        eos_token_ids: Collection[int],
        decode_run: int,
    ) -> None:
        super().__init__(policy, cache, cost, limits, eos_token_ids, decode_run)
        self._room_left = 0  # prompt tokens that this step can still take in

    def plan(self, now: float) -> Plan | None:
        """Prompts that have entered and are not computed yet come first."""
        behind = sum(len(request.tokens) - request.computed for request in self._running)
        self._room_left = self._limits.token_budget - behind
        return super().plan(now)

    def admit(self, request: Request) -> int | None:
        """Gate: as Batcher's, while the step has room; the last one may go beyond it and is computed in chunks."""
        if self._room_left <= 0:
            return None
        extend = super().admit(request)
        if extend is not None:
            self._room_left -= len(request.tokens) - request.computed
        return extend
