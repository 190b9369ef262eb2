"""Sampling in vLLM's processes with the worker's own sampler, as one of vLLM's custom logits processors.

vLLM is asked for the most likely token of every request. For a request that is sampled, biased, penalised, constrained
or has `min_tokens`, the processor chooses the token with `local_worker.engine.sampling`, and leaves it as the only
possible one. So seeds, penalties and truncation mean the same as with the other engines, and a text goes on exactly at
another worker. The log-probabilities that vLLM reports are those of the model, since it computes them before.

The masks of constrained outputs are sent to the processor before each step's tokens are sampled. vLLM's own way of
sending them, its GrammarOutput, would change the log-probabilities, too.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from vllm import SamplingParams as VllmSamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from local_worker.core.batch import Slice
from local_worker.engine.sampling import choose
from serving.sampling_params import SamplingParams

KEY = "fairlead"  # of vLLM's `extra_args` for a request, and of its `additional_config`


class SamplingInput(NamedTuple):
    """The data, apart from its tokens, with which a request is sampled; see Slice."""

    request: int
    sampling: SamplingParams
    prompt_tokens: int
    seed_position: int


class Row(NamedTuple):
    """A row of vLLM's batch that the processor samples; vLLM appends to `output`."""

    drawing: SamplingInput
    prompt: list[int]
    output: list[int]

    @property
    def slice(self) -> Slice:
        """The slice that samples the next token."""
        drawing, stop = self.drawing, len(self.prompt) + len(self.output)
        penalised = drawing.sampling.has_penalties
        return Slice(
            request=drawing.request,
            tokens=(),
            start=stop - 1,
            stop=stop,
            pages=(),
            samples=True,
            sampling=drawing.sampling,
            prompt_tokens=drawing.prompt_tokens,
            seed_position=drawing.seed_position,
            context=(*self.prompt, *self.output) if penalised else (),
        )


def sampling_params(piece: Slice) -> VllmSamplingParams:
    """Return vLLM's parameters for the request of `piece`."""
    sampling = piece.sampling
    drawing = SamplingInput(piece.request, sampling, piece.prompt_tokens, piece.seed_position)
    is_plain = (
        sampling.is_greedy
        and not sampling.has_penalties
        and not sampling.logit_bias
        and sampling.min_tokens == 0
        and sampling.constraint is None
    )
    return VllmSamplingParams(
        temperature=0.0,
        max_tokens=sampling.max_tokens,
        logprobs=sampling.logprobs,
        prompt_logprobs=sampling.prompt_logprobs if piece.scored else None,
        ignore_eos=True,
        detokenize=False,
        extra_args=None if is_plain else {KEY: drawing},
    )


class SeededSampler(LogitsProcessor):
    """See the module's docstring; vLLM makes one in each of its processes."""

    allowed: ClassVar[Mapping[int, bytes]] = {}  # masks (Matcher.allowed) of the next step, by request

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, Row] = {}
        self._eos_token_ids: list[int] = vllm_config.additional_config[KEY]
        self._before = torch.empty(0, dtype=torch.int64, device=device)

    def is_argmax_invariant(self) -> bool:
        """Return that the most likely token may change."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the changes of vLLM's batch: removals, then additions, then moves."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._rows.pop(index, None)
        for index, params, prompt, output in batch_update.added:
            self._rows.pop(index, None)
            if params.extra_args and KEY in params.extra_args:
                self._rows[index] = Row(SamplingInput(*params.extra_args[KEY]), prompt, output)
        for source, target, direction in batch_update.moved:
            moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
            if moved is not None:
                self._rows[target] = moved
            if replaced is not None and direction is MoveDirectionality.SWAP:
                self._rows[source] = replaced

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits [requests, vocabulary] in which each row of this processor allows only the chosen token."""
        if self._rows:
            at = torch.tensor(list(self._rows), device=logits.device)
            slices = [row.slice for row in self._rows.values()]
            masks = {
                row: self.allowed[piece.request] for row, piece in enumerate(slices) if piece.request in self.allowed
            }
            tokens = choose(logits.index_select(0, at), slices, self._before, self._eos_token_ids, masks)
            logits.index_fill_(0, at, -torch.inf)
            logits[at, tokens] = 0.0
        return logits


def allow(_worker: object, masks: Mapping[int, bytes]) -> None:
    """Let the next step's tokens of constrained requests be those in `masks`; called in each of vLLM's processes."""
    SeededSampler.allowed = masks
