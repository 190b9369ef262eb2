"""Choosing tokens. Randomness is counter-based: (seed, position) alone decide, whatever else is in the batch.

One uniform number per token, made on the host, inverts the distribution's cumulative sum: the same on every device.
"""

from collections.abc import Sequence

import torch
import xxhash

from fairlead.sampling import Sampling
from local_worker.core.batch import StepResult, TokenLogprobs
from local_worker.core.request import Request

# How many of the most likely tokens are looked at first for top-p and min-p; more where they do not reach it.
FIRST_CANDIDATES = 256
WIDEN = 8
UNIFORM_BITS = 32


def choose(logits: torch.Tensor, requests: Sequence[Request], eos_token_ids: Sequence[int]) -> StepResult:
    """One token per row of `logits` [rows, vocabulary], each by its request's parameters.

    Log-probabilities are the model's own: before penalties, temperature and truncation.
    """
    adjusted = adjust(logits, requests, eos_token_ids)
    tokens = adjusted.argmax(dim=-1)
    drawn = [row for row, request in enumerate(requests) if request.sampling.temperature > 0]
    if drawn:
        tokens[drawn] = _draw(adjusted[drawn].float(), [requests[row] for row in drawn])
    chosen: list[int] = tokens.tolist()
    return StepResult(tuple(chosen), _logprobs(logits, chosen, requests))


def adjust(logits: torch.Tensor, requests: Sequence[Request], eos_token_ids: Sequence[int]) -> torch.Tensor:
    """Logits with penalties, and no end before `min_tokens`; `logits` itself where nobody asked for either."""
    rows = [row for row, request in enumerate(requests) if _is_adjusted(request)]
    if not rows:
        return logits
    adjusted = logits.clone()
    for row in rows:
        adjusted[row] = _penalised(adjusted[row], requests[row])
        sampling = requests[row].sampling
        if requests[row].output_tokens < sampling.min_tokens:
            ends = [*sampling.stop_token_ids, *(() if sampling.ignore_eos else eos_token_ids)]
            adjusted[row, ends] = -torch.inf
    return adjusted


def _is_adjusted(request: Request) -> bool:
    return request.sampling.has_penalties or request.output_tokens < request.sampling.min_tokens


def _penalised(logits: torch.Tensor, request: Request) -> torch.Tensor:
    """Repetition penalty over prompt and output (CTRL, arXiv 1909.05858), presence and frequency over the output."""
    sampling = request.sampling
    if not sampling.has_penalties:
        return logits
    counts = _counts(request.all_output, logits)
    seen = (_counts(request.tokens, logits) > 0) if sampling.repetition_penalty != 1 else counts > 0
    lowered = torch.where(logits > 0, logits / sampling.repetition_penalty, logits * sampling.repetition_penalty)
    logits = torch.where(seen, lowered, logits) if sampling.repetition_penalty != 1 else logits
    return logits - sampling.presence_penalty * (counts > 0) - sampling.frequency_penalty * counts


def _counts(tokens: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
    ids = torch.tensor(tokens, dtype=torch.int64, device=logits.device)
    return torch.bincount(ids, minlength=len(logits))


def _draw(logits: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
    """[rows, vocabulary] to [rows]."""
    samplings = [request.sampling for request in requests]
    logits = logits / _column([sampling.temperature for sampling in samplings], logits)
    uniforms = _column([_uniform(request) for request in requests], logits).double()
    tokens = logits.new_empty(len(requests), dtype=torch.int64)
    whole = [row for row, sampling in enumerate(samplings) if not sampling.is_truncated]
    cut = [row for row, sampling in enumerate(samplings) if sampling.is_truncated]
    if whole:
        tokens[whole] = _invert(logits[whole].softmax(dim=-1), uniforms[whole])
    if cut:
        probabilities, candidates = _truncate(logits[cut], [samplings[row] for row in cut])
        places = _invert(probabilities, uniforms[cut])
        tokens[cut] = candidates.gather(1, places[:, None])[:, 0]
    return tokens


def _uniform(request: Request) -> float:
    """In [0, 1), from the seed and the token's position in the whole output."""
    position = request.seed_position + request.output_tokens
    digest = xxhash.xxh3_64_intdigest(position.to_bytes(8, "little"), request.sampling.seed)
    return (digest >> (64 - UNIFORM_BITS)) / (1 << UNIFORM_BITS)


def _invert(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """The first place where the cumulative sum exceeds the uniform number's share of it; never an impossible one."""
    cumulative = probabilities.double().cumsum(dim=-1)
    return torch.searchsorted(cumulative, uniforms * cumulative[:, -1:], right=True)[:, 0]


def _truncate(logits: torch.Tensor, samplings: Sequence[Sampling]) -> tuple[torch.Tensor, torch.Tensor]:
    """top-k, then top-p, then min-p, as other engines order them: probabilities and tokens, most likely first."""
    vocabulary = logits.shape[1]
    top_k = _column([min(sampling.top_k or vocabulary, vocabulary) for sampling in samplings], logits)
    top_p = _column([sampling.top_p for sampling in samplings], logits)
    min_p = _column([sampling.min_p for sampling in samplings], logits)
    asked = max((sampling.top_k for sampling in samplings), default=0)
    depth = min(vocabulary, max(FIRST_CANDIDATES, asked))
    whole = logits.logsumexp(dim=-1, keepdim=True)
    while True:
        values, candidates = logits.topk(depth, dim=-1)
        in_top_k = torch.arange(depth, device=logits.device) < top_k
        total = torch.where(top_k < vocabulary, _masked(values, in_top_k).logsumexp(dim=-1, keepdim=True), whole)
        probabilities = (values - total).exp() * in_top_k
        reached = probabilities.cumsum(dim=-1)
        kept = in_top_k & (reached - probabilities < top_p) & (probabilities >= min_p * probabilities[:, :1])
        # Deep enough where the last candidate is already out: so is everything less likely.
        if depth == vocabulary or not bool(kept[:, -1].any()):
            return probabilities * kept, candidates
        depth = min(vocabulary, depth * WIDEN)


def _masked(values: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    return values.masked_fill(~kept, -torch.inf)


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, device=like.device)[:, None]


def _logprobs(
    logits: torch.Tensor, tokens: Sequence[int], requests: Sequence[Request]
) -> tuple[TokenLogprobs | None, ...]:
    if all(request.sampling.logprobs is None for request in requests):
        return ()
    return tuple(
        None if request.sampling.logprobs is None else _row_logprobs(logits[row], token, request.sampling.logprobs)
        for row, (token, request) in enumerate(zip(tokens, requests, strict=True))
    )


def _row_logprobs(logits: torch.Tensor, token: int, alternatives: int) -> TokenLogprobs:
    logprobs = logits.float().log_softmax(dim=-1)
    values, ids = logprobs.topk(min(alternatives, len(logprobs)))
    return TokenLogprobs(float(logprobs[token]), tuple(zip(ids.tolist(), values.tolist(), strict=True)))
