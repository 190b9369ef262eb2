"""How the engine behind the VTC measurements batches (S-LoRA, on LightLLM; VTC section 5.1).

It is the measured system's own admission around a policy of ours: new requests enter only every tenth decoding step, by
an estimate of the most memory that the batch will ever need, and a prefill runs alone while the others wait.
"""

from collections.abc import Collection, Iterator, Sequence

from fairlead.cost import Cost
from local_worker.core.batch import Slice, StepResult
from local_worker.core.batcher import Advance, Plan
from local_worker.core.limits import Limits
from local_worker.core.policies.protocol import QueuePolicy
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.request import Request
from simulation.decode_runs import RunBatcher, left_of

DECODES_BETWEEN_PREFILLS = 10
PREFILL_SHARE = 6  # at most 1/6 of the memory, or the longest request, in new prompts at a time
LONGEST_REQUEST = 3072


class SloraBatcher(RunBatcher):
    """Needs optimistic admission with pages given as tokens come; the estimate keeps it from ever retracting."""

    def __init__(
        self,
        policy: QueuePolicy,
        cache: PrefixCache,
        cost: Cost,
        limits: Limits,
        eos_token_ids: Collection[int],
        capacity: int,
    ) -> None:
        super().__init__(policy, cache, cost, limits, eos_token_ids, DECODES_BETWEEN_PREFILLS)
        self._capacity = capacity  # tokens
        self._prefill_limit = max(self._capacity // PREFILL_SHARE, LONGEST_REQUEST)
        self._decodes = 0
        self._prefill = 0
        self._due = True

    def plan(self, now: float) -> Plan | None:
        """The prompts that enter, alone; without such, a decoding step."""
        self._due = not self._running or self._decodes >= DECODES_BETWEEN_PREFILLS
        self._prefill = 0
        return super().plan(now)

    def _slices(self) -> Iterator[Slice]:
        slices = list(super()._slices())
        prompts = [piece for piece in slices if piece.start < piece.request.prompt_tokens]
        yield from prompts or slices

    def admit(self, request: Request) -> int | None:
        """Gate: see the module's first lines."""
        if not self._due or self._prefill + request.prompt_tokens > self._prefill_limit or not self._fits(request):
            return None
        extend = super().admit(request)
        if extend is not None:
            self._prefill += request.prompt_tokens
        return extend

    def _fits(self, request: Request) -> bool:
        """Requests end in order of what they have left; memory is fullest just before one of these ends."""
        sizes = [(left_of(other), len(other.tokens)) for other in (*self._running, request)]
        held = most = 0
        for number, (left, tokens) in enumerate(sorted(sizes, reverse=True), start=1):
            held += tokens
            most = max(most, held + number * left)
        return most < self._capacity

    def _steps(self, plan: Plan) -> int:
        """Once due, every step is another chance: nothing changes before a request arrives or ends."""
        if not self._due:
            return self._decode_run - self._decodes
        return min(left_of(piece.request) for piece in plan.batch.slices) if self._waiting else 1

    def commit(self, plan: Plan, result: StepResult) -> list[Advance]:
        """See Batcher."""
        prefill = any(piece.start < piece.request.prompt_tokens for piece in plan.batch.slices)
        self._decodes = 0 if prefill else self._decodes + 1
        return super().commit(plan, result)

    def commit_run(self, plan: Plan, tokens: Sequence[Sequence[int]]) -> list[Advance]:
        """See RunBatcher."""
        self._decodes += max(len(run) for run in tokens)
        return super().commit_run(plan, tokens)
