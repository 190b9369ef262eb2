"""Several decoding steps per scheduling decision, as in engines that schedule only once every few steps.

SGLang schedules after every tenth decoding step (DLPM section 5.1), and so does S-LoRA. The cores see such a run as one
step in which a request generates several tokens: no request can enter before the run ends, and a request that finishes
during the run leaves when the run ends.
"""

from collections.abc import Collection, Sequence

from local_worker.core.batch import Slice
from local_worker.core.batcher import Batcher
from local_worker.core.limits import BatchLimits
from local_worker.core.plan import Advance, Plan
from local_worker.core.policies.protocol import QueuePolicy
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.request import Request
from serving.cost import Cost


class RunBatcher(Batcher):
    """A batcher whose engine generates up to `decode_run` tokens per request before the next scheduling decision."""

    def __init__(
        self,
        policy: QueuePolicy,
        cache: PrefixCache,
        cost: Cost,
        limits: BatchLimits,
        eos_token_ids: Collection[int],
        decode_run: int,
    ) -> None:
        super().__init__(policy, cache, cost, limits, eos_token_ids)
        self._decode_run = decode_run

    def _slice(self, request: Request, tokens: int) -> Slice:
        """Return a slice without tokens and pages, which only a real engine reads."""
        stop = request.computed + tokens
        samples = stop == len(request.tokens)
        sampling, prompt_tokens = request.sampling, request.prompt_tokens
        return Slice(request.arrival, (), request.computed, stop, (), samples, sampling, prompt_tokens)

    def lengths(self, plan: Plan) -> list[int]:
        """Return the number of tokens that each slice generates in this run: 1 for all while a prompt is being
        computed."""
        slices = plan.batch.slices
        steps = self._steps(plan)
        if steps == 1 or any(piece.stop - piece.start > 1 for piece in slices):
            return [1] * len(slices)
        lengths = [min(steps, left_of(request)) for request in plan.requests]
        if all(
            self.cache.extend(request, len(request.tokens) + length - 1)
            for request, length in zip(plan.requests, lengths, strict=True)
        ):
            return lengths
        return [1] * len(slices)

    def _steps(self, plan: Plan) -> int:
        return self._decode_run

    def commit_run(self, plan: Plan, tokens: Sequence[Sequence[int]]) -> list[Advance]:
        """Apply a run of decoding steps; `tokens` holds the generated tokens of each slice."""
        self._in_flight.landed()
        advances = []
        for request, run in zip(plan.requests, tokens, strict=True):
            if request in self._running:
                request.tokens.extend(run)
                request.computed = len(request.tokens) - 1
                self.cache.publish(request, request.computed)
                advances.append(Advance(request, run, self._advance(request, run)))
        return advances


def left_of(request: Request) -> int:
    """Return the number of tokens that `request` has still to generate: simulated requests use their whole budget."""
    return request.sampling.max_tokens - request.output_tokens
