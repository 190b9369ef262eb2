"""Sampling in vLLM's processes with the worker's own sampler, as one of vLLM's custom logits processors.

vLLM is asked for the most likely token of every request. For a request that is sampled, biased, penalised, constrained
or has `min_tokens`, a processor chooses the token with `local_worker.engine.sampling`, and leaves it as the only
possible one. So seeds, penalties and truncation mean the same as with the other engines, and a text goes on exactly at
another worker. The log-probabilities that vLLM reports are those of the model, since it computes them before.

The masks of constrained outputs are sent to the processor before each step's tokens are sampled. vLLM's own way of
sending them, its GrammarOutput, would change the log-probabilities, too.

vLLM's two model runners have processors of different classes: `processor_v1` and `processor_v2`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from vllm import SamplingParams as VllmSamplingParams

from local_worker.core.batch import Slice
from local_worker.engine.sampling import choose
from local_worker.engine.transfer import upload
from serving.sampling_params import SamplingParams

KEY = "fairlead"  # of vLLM's `extra_args` for a request, and of its `additional_config`


class SamplingInput(NamedTuple):
    """The data, apart from its tokens, with which a request is sampled; see Slice."""

    request: int
    sampling: SamplingParams
    prompt_tokens: int
    seed_position: int

    def slice(self, stop: int, context: bytes) -> Slice:
        """Return the slice that samples the token at position `stop`, after the packed tokens in `context` if penalties
        need them."""
        return Slice(
            request=self.request,
            tokens=(),
            start=stop - 1,
            stop=stop,
            pages=(),
            samples=True,
            sampling=self.sampling,
            prompt_tokens=self.prompt_tokens,
            seed_position=self.seed_position,
            context=context,
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


def sampling_input(params: VllmSamplingParams) -> SamplingInput | None:
    """Return what `sampling_params` has put into vLLM's parameters; None for a request that is greedy and no more."""
    return SamplingInput(*params.extra_args[KEY]) if params.extra_args and KEY in params.extra_args else None


class SeededSampler:
    """The sampler of a processor; see the module's docstring."""

    allowed: ClassVar[Mapping[int, bytes]] = {}  # masks (Matcher.allowed) of the next step, by request

    def __init__(self, vllm_config: Any) -> None:
        self._eos_token_ids: list[int] = vllm_config.additional_config[KEY]

    def keep_chosen(self, logits: torch.Tensor, slices: Mapping[int, Slice]) -> torch.Tensor:
        """Return `logits` [rows, vocabulary], changed so that each row of `slices` allows only the chosen token."""
        if slices:
            [at] = upload([list(slices)], logits.device)
            pieces = list(slices.values())
            masks = {
                row: self.allowed[piece.request] for row, piece in enumerate(pieces) if piece.request in self.allowed
            }
            unsampled = torch.empty(0, dtype=torch.int64, device=logits.device)  # every token before is in the context
            tokens = choose(logits.index_select(0, at), pieces, unsampled, self._eos_token_ids, masks)
            logits.index_fill_(0, at, -torch.inf)
            logits[at, tokens] = 0.0
        return logits


def allow(_worker: object, masks: Mapping[int, bytes]) -> None:
    """Let the next step's tokens of constrained requests be those in `masks`; called in each of vLLM's processes."""
    SeededSampler.allowed = masks
