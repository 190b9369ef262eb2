"""Attention sinks: each head's softmax divides by a sum that contains exp(sink), too."""

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

# SDPA's fast kernels on CUDA take sizes of keys that are multiples of it.
FEATURES = 8


def attention_with_sinks(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    seen: torch.Tensor,
    sinks: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Return what SDPA returns for `queries` [..., queries, size] if each sees one more token, whose score is its sink
    and whose value is 0.

    `sinks` can be broadcast to [..., queries], `seen` to [..., queries, keys]. The additional token alone has
    the feature that the queries multiply by their sink, so that its score is the sink however the keys are shared.
    """
    size = keys.shape[-1]
    feature = (sinks / scale).to(queries.dtype).expand(queries.shape[:-1])[..., None]
    keys = pad(keys, (0, FEATURES, 0, 1))
    keys[..., -1, size] = 1
    return scaled_dot_product_attention(
        torch.cat((queries, pad(feature, (0, FEATURES - 1))), dim=-1),
        keys.expand(*queries.shape[:-2], -1, -1),
        pad(values, (0, 0, 0, 1)).expand(*queries.shape[:-2], -1, -1),
        attn_mask=pad(seen, (0, 1), value=True),
        scale=scale,
    )


def beside_sinks(out: torch.Tensor, sums: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    """Return the attention with `sinks` [heads] for `out` [tokens, heads, size], computed without them.

    `sums` [tokens, heads] are the natural logarithms of the sums by which `out` was divided.
    """
    return out * torch.sigmoid(sums - sinks.float())[..., None].to(out.dtype)
