"""Keys and values in pages: one pair of tensors per layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps of a token."""

    heads: int
    key_size: int
    value_size: int

    @property
    def elements(self) -> int:
        """Numbers per token, keys and values together."""
        return self.heads * (self.key_size + self.value_size)


class PagedKV:
    """`keys[layer]` and `values[layer]` are [pages, block, heads, size] (FlashInfer's NHD); shapes may differ by layer.

    Slot s of a layer is token `s % block` of page `s // block`. One page more than asked for is nobody's: padding goes
    there.
    """

    def __init__(
        self, shapes: Sequence[LayerShape], pages: int, block_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.block_tokens = block_tokens
        self.spare_page = pages
        self.shapes = tuple(shapes)
        self.dtype = dtype
        self.device = device
        self.keys = [self._pages(pages, shape.heads, shape.key_size) for shape in shapes]
        self.values = [self._pages(pages, shape.heads, shape.value_size) for shape in shapes]

    def _pages(self, pages: int, heads: int, size: int) -> torch.Tensor:
        return torch.zeros(pages + 1, self.block_tokens, heads, size, dtype=self.dtype, device=self.device)

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store the keys and values, [tokens, heads, size] each, of the tokens whose `slots` are given."""
        self.keys[layer].flatten(0, 1).index_copy_(0, slots, keys)
        self.values[layer].flatten(0, 1).index_copy_(0, slots, values)


def bytes_per_token(shapes: Sequence[LayerShape], dtype: torch.dtype) -> int:
    """Memory that one token of context takes."""
    return sum(shape.elements for shape in shapes) * dtype.itemsize
