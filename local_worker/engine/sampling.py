"""Sampling of tokens. Random numbers are counter-based: they depend only on (seed, position), not on the rest of the
batch.

The host computes one uniform number per token, which inverts the distribution's cumulative sum: the result is equal on
every device. No function here waits for a CUDA device, since the next step may need the tokens on the device before the
host knows them.
"""

from collections.abc import Mapping, Sequence

import torch
import xxhash

from local_worker.core.batch import Slice
from local_worker.engine.transfer import staged, upload, upload_bits, upload_ids
from serving.sampling_params import SamplingParams

# Number of most likely tokens considered first for top-p and min-p, and its factor of growth while they do not suffice.
FIRST_CANDIDATES = 256
WIDEN = 8
UNIFORM_BITS = 32
NO_MASKS: Mapping[int, bytes] = {}


def choose(
    logits: torch.Tensor,
    slices: Sequence[Slice],
    before: torch.Tensor,
    eos_token_ids: Sequence[int],
    allowed: Mapping[int, bytes] = NO_MASKS,
) -> torch.Tensor:
    """Return one token per row of `logits` [rows, vocabulary], by the sampling parameters of the row's slice: [rows].

    `before` are the tokens sampled for the previous batch. If the host does not know a slice's token, the slice's
    `source` is its index in `before`. `allowed` are the masks of constrained rows, which Matcher.allowed describes.
    """
    logits = adjust(logits, slices, before, eos_token_ids, allowed)
    tokens = logits.argmax(dim=-1)
    whole: list[int] = []
    cut: list[int] = []
    for row, piece in enumerate(slices):
        if not piece.sampling.is_greedy:
            (cut if piece.sampling.is_truncated else whole).append(row)
    for rows, draw in ((whole, _draw), (cut, _draw_truncated)):
        if rows:
            [at] = upload([rows], logits.device)
            drawn = draw(logits.index_select(0, at).float(), [slices[row] for row in rows])
            tokens.index_copy_(0, at, drawn)
    return tokens


def adjust(
    logits: torch.Tensor,
    slices: Sequence[Slice],
    before: torch.Tensor,
    eos_token_ids: Sequence[int],
    allowed: Mapping[int, bytes] = NO_MASKS,
) -> torch.Tensor:
    """Return logits of `allowed` tokens with biases, then penalties applied, and without ends of the output before
    `min_tokens`.

    Return `logits` itself if no slice needs any of these.
    """
    rows = [row for row, piece in enumerate(slices) if _is_adjusted(piece)]
    if not rows and not allowed:
        return logits
    adjusted = _allowed(logits, allowed) if allowed else logits.clone()
    for row in rows:
        sampling = slices[row].sampling
        if sampling.logit_bias:
            adjusted[row] = _biased(adjusted[row], sampling.logit_bias)
        if sampling.has_penalties:
            adjusted[row] = _penalised(adjusted[row], slices[row], before)
        if slices[row].output_tokens < sampling.min_tokens:
            ends = [*sampling.stop_token_ids, *(() if sampling.ignore_eos else eos_token_ids)]
            adjusted[row].index_fill_(0, upload([ends], logits.device)[0], -torch.inf)
    return adjusted


def _is_adjusted(piece: Slice) -> bool:
    sampling = piece.sampling
    return bool(sampling.logit_bias) or sampling.has_penalties or piece.output_tokens < sampling.min_tokens


def _allowed(logits: torch.Tensor, allowed: Mapping[int, bytes]) -> torch.Tensor:
    """Return logits [rows, vocabulary] without the tokens that the masks of their rows exclude."""
    rows, vocabulary = logits.shape
    size = -(-vocabulary // 8)
    every = b"\xff" * size
    masks = [allowed[row].ljust(size, b"\0")[:size] if row in allowed else every for row in range(rows)]
    return torch.where(upload_bits(masks, logits.device)[:, :vocabulary], logits, -torch.inf)


def _biased(logits: torch.Tensor, biases: Sequence[tuple[int, float]]) -> torch.Tensor:
    """Return logits [vocabulary] with the biases added."""
    [tokens] = upload([[token for token, _ in biases]], logits.device)
    values = staged([bias for _, bias in biases], torch.float64, logits.device)
    return logits.index_add(0, tokens, values.to(logits.device, logits.dtype, non_blocking=True))


def _penalised(logits: torch.Tensor, piece: Slice, before: torch.Tensor) -> torch.Tensor:
    """Apply repetition penalty to prompt and output (CTRL, arXiv 1909.05858), presence and frequency penalties to the
    output."""
    sampling = piece.sampling
    tokens = upload_ids(piece.context, logits.device)
    if piece.source is not None:  # the host does not know the slice's own token
        tokens = torch.cat([tokens, before[piece.source : piece.source + 1].int()])
    counts = _counts(tokens[piece.prompt_tokens - piece.seed_position :], logits)
    if sampling.repetition_penalty != 1:
        seen = _counts(tokens, logits) > 0
        penalty = sampling.repetition_penalty
        logits = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
    return logits - sampling.presence_penalty * (counts > 0) - sampling.frequency_penalty * counts


def _counts(tokens: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Return [vocabulary]: the number of occurrences of each token in `tokens`."""
    counts = torch.zeros(len(logits), dtype=torch.int32, device=logits.device)
    return counts.index_add_(0, tokens, torch.ones_like(tokens))


def _draw(logits: torch.Tensor, slices: Sequence[Slice]) -> torch.Tensor:
    """Sample from the whole distributions: [rows, vocabulary] to [rows]."""
    temperatures, uniforms = _columns([(_temperature(piece), _uniform(piece)) for piece in slices], logits)
    return _invert((logits / temperatures.float()).softmax(dim=-1), uniforms)


def _draw_truncated(logits: torch.Tensor, slices: Sequence[Slice]) -> torch.Tensor:
    """Sample from the distributions truncated by top-k, top-p and min-p: [rows, vocabulary] to [rows]."""
    vocabulary = logits.shape[1]
    samplings = [piece.sampling for piece in slices]
    temperatures, uniforms, top_k, top_p, min_p = _columns(
        [
            (_temperature(piece), _uniform(piece), _top_k(sampling, vocabulary), sampling.top_p, sampling.min_p)
            for piece, sampling in zip(slices, samplings, strict=True)
        ],
        logits,
    )
    most = max(_top_k(sampling, vocabulary) for sampling in samplings)
    probabilities, candidates = _truncate(logits / temperatures.float(), top_k, top_p.float(), min_p.float(), most)
    return candidates.gather(1, _invert(probabilities, uniforms)[:, None])[:, 0]


def _temperature(piece: Slice) -> float:
    return piece.sampling.temperature


def _uniform(piece: Slice) -> float:
    """Return a number in [0, 1) that depends on the seed and the token's position in the whole output."""
    position = piece.seed_position + piece.output_tokens
    digest = xxhash.xxh3_64_intdigest(position.to_bytes(8, "little"), piece.sampling.seed)
    return (digest >> (64 - UNIFORM_BITS)) / (1 << UNIFORM_BITS)


def _top_k(sampling: SamplingParams, vocabulary: int) -> int:
    return min(sampling.top_k or vocabulary, vocabulary)


def _columns(rows: Sequence[Sequence[float]], like: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return float64 columns [rows, 1] on the device of `like`, transferred in one copy."""
    numbers = staged([number for row in rows for number in row], torch.float64, like.device)
    return numbers.to(like.device, non_blocking=True).view(len(rows), -1, 1).unbind(dim=1)


def _invert(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return the first index whose cumulative sum exceeds the uniform number times the total; its probability is never
    0."""
    cumulative = probabilities.double().cumsum(dim=-1)
    return torch.searchsorted(cumulative, uniforms * cumulative[:, -1:], right=True)[:, 0]


def _truncate(
    logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor, most: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply top-k, then top-p, then min-p, in the order of other engines; return probabilities and tokens, most likely
    first.

    No row has more than `most` candidates, which is the largest top-k, or the vocabulary. On CUDA it takes so many,
    since a check would wait for the device; elsewhere it starts with few and adds more until they suffice.
    """
    vocabulary = logits.shape[1]
    depth = most if logits.is_cuda else min(most, FIRST_CANDIDATES)
    whole = logits.logsumexp(dim=-1, keepdim=True)
    while True:
        values, candidates = logits.topk(depth, dim=-1)
        in_top_k = torch.arange(depth, device=logits.device) < top_k
        total = torch.where(top_k < vocabulary, _masked(values, in_top_k).logsumexp(dim=-1, keepdim=True), whole)
        probabilities = (values - total).exp() * in_top_k
        reached = probabilities.cumsum(dim=-1)
        kept = in_top_k & (reached - probabilities < top_p) & (probabilities >= min_p * probabilities[:, :1])
        # Deep enough if the last candidate is excluded: then all less likely ones are excluded too.
        if depth == most or not bool(kept[:, -1].any()):
            return probabilities * kept, candidates
        depth = min(most, depth * WIDEN)


def _masked(values: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    return values.masked_fill(~kept, -torch.inf)
