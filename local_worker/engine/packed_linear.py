"""Linear layers whose weights are stored in the layout that oneDNN's kernels read.

On the machines measured (lab.bench.engine) they are twice as fast as torch's own layers at any number of rows. A single
row is computed by another kernel with another order of summation. From two rows on, the result of a row does not depend
on the other rows.
"""

import torch
from torch import nn


class PackedLinear(nn.Module):
    """A replacement for an `nn.Linear` with equal results, which keeps only the packed copy of its weight.

    Inputs of fewer than `least_rows` rows are padded to `least_rows`.
    """

    def __init__(self, linear: nn.Linear, least_rows: int = 1) -> None:
        super().__init__()
        self._least_rows = least_rows
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Compute [..., out_features] from `rows` [..., in_features]."""
        count = rows.shape[:-1].numel()
        if 0 < count < self._least_rows:
            padded = rows.reshape(count, -1)[torch.arange(self._least_rows) % count]
            return self._linear(padded)[:count].view(*rows.shape[:-1], -1)
        return self._linear(rows)

    def _linear(self, rows: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(rows, self._weight, self._bias, "none", [], "")
        return out


def can_pack(dtype: torch.dtype) -> bool:
    """Return whether this machine has fast kernels for packed weights of `dtype`."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype is torch.float32 or (dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def pack(model: nn.Module, least_rows: int = 1) -> None:
    """Replace every plain linear layer of `model`; subclasses of nn.Linear are left as they are."""
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear and can_pack(module.weight.dtype):
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, PackedLinear(module, least_rows))
