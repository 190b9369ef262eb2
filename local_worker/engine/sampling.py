"""Choosing tokens. Randomness is counter-based: (seed, position) alone decide, whatever else is in the batch."""

import torch
import xxhash

from fairlead.sampling import Sampling
from local_worker.core.request import Request


def sample(logits: torch.Tensor, requests: list[Request]) -> tuple[int, ...]:
    """One token per row of `logits` [rows, vocabulary], each by its request's parameters."""
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    for row, request in enumerate(requests):
        if request.sampling.temperature > 0:
            position = request.seed_position + request.output_tokens
            tokens[row] = _draw(logits[row], request.sampling, position)
    return tuple(tokens)


def _draw(logits: torch.Tensor, sampling: Sampling, position: int) -> int:
    probabilities = torch.softmax(_restrict(logits.float() / sampling.temperature, sampling), dim=-1)
    generator = torch.Generator(device=logits.device)
    generator.manual_seed(xxhash.xxh3_64_intdigest(position.to_bytes(8, "little"), sampling.seed) >> 1)
    # The exponential race: argmax of p / Exp(1) is distributed as p.
    noise = torch.empty_like(probabilities).exponential_(generator=generator)
    return int((probabilities / noise).argmax())


def _restrict(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """top-k, then top-p, then min-p, as other engines order them; the rest becomes -inf."""
    if sampling.top_k and sampling.top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(sampling.top_k).values[-1], -torch.inf)
    if sampling.top_p < 1:
        ordered, order = logits.sort(descending=True)
        before = torch.softmax(ordered, dim=-1).cumsum(dim=-1) - torch.softmax(ordered, dim=-1)
        logits = logits.index_fill(0, order[before >= sampling.top_p], -torch.inf)
    if sampling.min_p > 0:
        probabilities = torch.softmax(logits, dim=-1)
        logits = logits.masked_fill(probabilities < sampling.min_p * probabilities.max(), -torch.inf)
    return logits
