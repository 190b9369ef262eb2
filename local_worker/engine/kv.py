"""Keys and values in pages: one pair of tensors per layer, addressed by slots (page x page size + offset)."""

import torch


class PagedKV:
    """`keys[layer]` and `values[layer]` are [slots, heads, head_dim]; heads and sizes may differ by layer."""

    def __init__(self, shapes: list[tuple[int, int, int]], pages: int, block_tokens: int, dtype: torch.dtype) -> None:
        """`shapes` holds (kv heads, key size, value size) of each layer."""
        self.block_tokens = block_tokens
        slots = pages * block_tokens
        self.keys = [torch.zeros(slots, heads, size, dtype=dtype) for heads, size, _ in shapes]
        self.values = [torch.zeros(slots, heads, size, dtype=dtype) for heads, _, size in shapes]

    def slots(self, pages: tuple[int, ...], start: int, stop: int) -> torch.Tensor:
        """The slots of tokens `[start, stop)` of a request with `pages`; [stop - start] int64."""
        table = torch.tensor(pages[: -(-stop // self.block_tokens)], dtype=torch.int64)
        positions = torch.arange(start, stop, dtype=torch.int64)
        return table[positions // self.block_tokens] * self.block_tokens + positions % self.block_tokens
