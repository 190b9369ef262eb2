"""Attention by torch's kernel for sequences of different lengths: on CUDA without FlashInfer, in half precision.

The contexts of all requests are gathered side by side, and one call computes a layer. SDPA would need a call for each
group of requests of similar length, and a call takes longer to launch than a small group takes to compute.
"""

from collections.abc import Sequence
from inspect import signature

import torch
from torch.nn.attention.varlen import AuxRequest, varlen_attn

from local_worker.core.batch import Slice
from local_worker.engine.attention import LayerStep
from local_worker.engine.kv import PagedKV
from local_worker.engine.page_tables import PageLists, PageTables
from local_worker.engine.sinks import beside_sinks

# Sizes of keys and values for which the kernel exists: multiples of the first, up to the second.
SIZE_STEP, LARGEST_SIZE = 8, 256


class Varlen:
    """Attention over gathered contexts, for batches of any kind."""

    @staticmethod
    def computes(kv: PagedKV) -> bool:
        """Return whether this version of torch has a kernel for `kv`."""
        return (
            kv.dtype is not torch.float32
            and "enable_gqa" in signature(varlen_attn).parameters
            and all(
                shape.key_size == shape.value_size <= LARGEST_SIZE and shape.key_size % SIZE_STEP == 0
                for shape in kv.shapes
            )
        )

    def __init__(self, kv: PagedKV) -> None:
        self._kv = kv
        self._lists = PageLists()
        self._step: VarlenStep

    def plan(self, slices: Sequence[Slice]) -> None:
        self._step = VarlenStep(slices, self._kv, self._lists)

    def attend(self, layer: int, step: LayerStep) -> torch.Tensor:
        plan = self._step
        keys, values = (pages[layer].flatten(0, 1)[plan.slots] for pages in (self._kv.keys, self._kv.values))
        out, sums = varlen_attn(
            step.queries.contiguous(),
            keys,
            values,
            plan.queries,
            plan.contexts,
            plan.most_queries,
            plan.longest,
            return_aux=AuxRequest(lse=True),
            scale=step.scaling,
            window_size=(-1 if step.window is None else step.window - 1, 0),
            enable_gqa=True,
        )
        return out if step.sinks is None else beside_sinks(out, sums.T, step.sinks)


class VarlenStep:
    """The tables of one step on the device: `queries` and `contexts` [requests + 1] are offsets, `slots` [context
    tokens] the slots of all contexts."""

    def __init__(self, slices: Sequence[Slice], kv: PagedKV, lists: PageLists) -> None:
        device, block = kv.device, kv.block_tokens
        tables = PageTables(slices, block, device, lists)
        self.most_queries = tables.longest
        self.longest = max(piece.stop for piece in slices)
        tokens = sum(piece.stop for piece in slices)

        def to_device(table: torch.Tensor) -> torch.Tensor:
            return table.to(device, non_blocking=True)

        self.queries, pages, indices, lengths = map(
            to_device, (tables.queries, tables.pages, tables.indices, tables.lengths)
        )
        self.contexts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        # With the size given, no step waits for the device to tell it.
        request = torch.repeat_interleave(lengths, output_size=tokens)
        position = torch.arange(tokens, device=device) - self.contexts[request]
        self.slots = indices[pages[request] + position // block].long() * block + position % block
