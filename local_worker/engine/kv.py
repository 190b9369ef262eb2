"""Keys and values in pages: one pair of tensors per layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The number and sizes of the keys and values that one layer stores per token, and how many queries read them."""

    heads: int
    key_size: int
    value_size: int
    query_heads: int

    @property
    def elements(self) -> int:
        """The number of elements that one token takes, keys and values together."""
        return self.heads * (self.key_size + self.value_size)


class PagedKV:
    """The tensors `keys[layer]` and `values[layer]`, [pages, block, heads, size] (FlashInfer's NHD), with shapes per
    layer.

    Slot s of a layer is token `s % block` of page `s // block`. There is one spare page more than requested, for
    padding.
    """

    def __init__(
        self, shapes: Sequence[LayerShape], pages: int, block_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.block_tokens = block_tokens
        self.spare_page = pages
        self.spare_slot = pages * block_tokens
        self.shapes = tuple(shapes)
        self.dtype = dtype
        self.device = device
        self.keys = [self._pages(pages, shape.heads, shape.key_size) for shape in shapes]
        self.values = [self._pages(pages, shape.heads, shape.value_size) for shape in shapes]

    def _pages(self, pages: int, heads: int, size: int) -> torch.Tensor:
        return torch.zeros(pages + 1, self.block_tokens, heads, size, dtype=self.dtype, device=self.device)

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store the keys and values, [tokens, heads, size] each, of the tokens at `slots` [tokens]."""
        self.keys[layer].flatten(0, 1).index_copy_(0, slots, keys)
        self.values[layer].flatten(0, 1).index_copy_(0, slots, values)


def bytes_per_token(shapes: Sequence[LayerShape], dtype: torch.dtype) -> int:
    """Return the number of bytes that one token of context takes."""
    return sum(shape.elements for shape in shapes) * dtype.itemsize
