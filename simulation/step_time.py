"""How long an engine step takes: a roofline, and what an engine adds to it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from local_worker.core.batch import Batch
from simulation.hardware import GPUS, MODELS, Gpu, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A model on a GPU under some engine. Efficiencies are shares of the published peaks.

    `step_seconds` is the fixed part of a step, `sequence_seconds` what each sequence in the batch adds to it.
    """

    gpu: Gpu
    model: Model
    compute: float = 0.6
    weights: float = 0.8
    kv: float = 0.6
    step_seconds: float = 0.004
    sequence_seconds: float = 0.00005
    prefill_seconds: float = 0.0  # what a step with prompts adds, and what the step after it does: only engines that
    merge_seconds: float = 0.0  # prefill apart and merge batches have these

    @property
    def kv_tokens(self) -> int:
        """Tokens that fit beside the weights when a tenth of the memory is left to activations."""
        return int((0.9 * self.gpu.memory - self.model.weight_bytes) / self.model.kv_bytes)


class StepTime:
    """Seconds per step.

    Linear layers read all weights and compute all tokens; the two overlap imperfectly, and their Euclidean sum is near
    the slower one everywhere but where they meet (large decode batches). Attention reads the cache and adds to it.
    """

    def __init__(self, profile: Profile) -> None:
        gpu, model = profile.gpu, profile.model
        self._fixed, self._sequence = profile.step_seconds, profile.sequence_seconds
        self._prefill, self._merge = profile.prefill_seconds, profile.merge_seconds
        self._merging = False
        self._weights = model.weight_bytes / (gpu.bandwidth * profile.weights)
        self._kv = model.kv_bytes / (gpu.bandwidth * profile.kv)
        self._token = 2 * model.parameters / (gpu.flops * profile.compute)
        # Scores and their use: two products of `hidden` per layer and pair of tokens, two operations each.
        self._pair = 4 * model.layers * model.hidden / (gpu.flops * profile.compute)

    def __call__(self, batch: Batch, lengths: Sequence[int]) -> float:
        """Seconds for `batch`, whose requests make `lengths` tokens each: more than one only while all decode."""
        tokens = context = pairs = sequences = 0
        prefill = False
        for piece, steps in zip(batch.slices, lengths, strict=True):
            prefill = prefill or piece.start < piece.request.prompt_tokens
            length = piece.stop - piece.start
            sequences += steps
            tokens += length * steps
            context += piece.stop * steps + steps * (steps - 1) // 2
            if length > 1:
                pairs += length * (piece.start + piece.stop) // 2
        steps = max(lengths)
        linear = math.hypot(steps * self._weights, tokens * self._token)
        attention = context * self._kv + pairs * self._pair
        extra = self._prefill if prefill else self._merge if self._merging else 0.0
        self._merging = prefill
        return steps * self._fixed + extra + sequences * self._sequence + linear + attention


def profile(gpu: str, model: str) -> Profile:
    """The general profile of a pair; raises KeyError for an unknown name."""
    return Profile(gpu=GPUS[gpu], model=MODELS[model])
