"""Norms by torch's own kernel: on GPUs one launch computes what the models of transformers compute in seven.

A layer has two to four norms, and launches are most of the time of a small step (lab/bench/GPU.md).
"""

from inspect import signature

import torch
from torch import nn

ROWS = 4  # of the input with which a norm is tried
TOLERANCE = 2**-6  # rounding of bfloat16, once before and once after the weight


def fuse_norms(model: nn.Module) -> int:
    """Replace the norms of `model` that only divide by the root of the mean square; return their number.

    A norm is replaced if torch's own agrees with it on random rows. Gemma's stay: it adds one to its weight in float32,
    which a weight in bfloat16 cannot hold.
    """
    fused = 0
    for name, module in list(model.named_modules()):
        parent, _, attribute = name.rpartition(".")
        if (norm := _fused(module)) is not None:
            setattr(model.get_submodule(parent), attribute, norm)
            fused += 1
    return fused


@torch.inference_mode()
def _fused(norm: nn.Module) -> nn.RMSNorm | None:
    """Return torch's own norm if it computes the same, else None."""
    parameters = dict(norm.named_parameters())
    epsilon = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    if list(parameters) != ["weight"] or not isinstance(epsilon, float) or len(signature(norm.forward).parameters) != 1:
        return None
    weight = parameters["weight"]
    if weight.dim() != 1:
        return None
    fused = nn.RMSNorm(len(weight), epsilon, dtype=weight.dtype, device=weight.device)
    fused.weight = weight
    rows = 1 + torch.randn(ROWS, len(weight), dtype=weight.dtype, device=weight.device)  # a mean shows where it counts
    return fused if torch.allclose(fused(rows), norm(rows), rtol=TOLERANCE, atol=TOLERANCE) else None
