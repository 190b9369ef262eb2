"""Attention by FlashInfer on CUDA, over the same pages. Imported only where a CUDA device is used.

One prefill plan with a causal mask serves mixed batches. A wrapper is planned once per step for each kind of layer: a
kind differs in window, heads or scaling.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flashinfer
import torch

from local_worker.core.batch import Slice
from local_worker.engine.attention import LayerStep
from local_worker.engine.kv import LayerShape, PagedKV

WORKSPACE_BYTES = 128 << 20
BACKEND = "fa2"


@dataclass(frozen=True, slots=True)
class Kind:
    """What a FlashInfer plan depends on besides the batch."""

    heads: int
    shape: LayerShape
    scaling: float
    window: int | None

    @property
    def window_left(self) -> int:
        """FlashInfer counts the tokens before a query, transformers the query too."""
        return -1 if self.window is None else self.window - 1


class PageTables:
    """Which pages a batch's requests have, as FlashInfer takes it: int32 on the host."""

    def __init__(self, slices: Sequence[Slice], block_tokens: int) -> None:
        lengths = torch.tensor([piece.stop - piece.start for piece in slices], dtype=torch.int32)
        used = [-(-piece.stop // block_tokens) for piece in slices]
        self.queries = _offsets(lengths)
        self.pages = _offsets(torch.tensor(used, dtype=torch.int32))
        self.indices = torch.tensor(
            [page for piece, count in zip(slices, used, strict=True) for page in piece.pages[:count]],
            dtype=torch.int32,
        )
        self.last_page = torch.tensor([(piece.stop - 1) % block_tokens + 1 for piece in slices], dtype=torch.int32)


def _offsets(counts: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.int32), counts.cumsum(0, dtype=torch.int32)])


class FlashInfer:
    """See Attention."""

    def __init__(self, kv: PagedKV) -> None:
        self._kv = kv
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=kv.device)
        self._wrappers: dict[Kind, Any] = {}
        self._planned: set[Kind] = set()
        self._tables: PageTables

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of layers met so far."""
        return tuple(self._wrappers)

    def plan(self, slices: Sequence[Slice]) -> None:
        """See Attention."""
        self._tables = PageTables(slices, self._kv.block_tokens)
        self._planned.clear()

    def attend(self, layer: int, step: LayerStep) -> torch.Tensor:
        """See Attention."""
        kind = Kind(step.queries.shape[1], self._kv.shapes[layer], step.scaling, step.window)
        if kind not in self._planned:
            self._plan(kind)
        pages = (self._kv.keys[layer], self._kv.values[layer])
        out: torch.Tensor = self._wrappers[kind].run(step.queries.contiguous(), pages)
        return out

    def _plan(self, kind: Kind) -> None:
        if kind not in self._wrappers:
            self._wrappers[kind] = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
                self._workspace, "NHD", backend=BACKEND
            )
        tables = self._tables
        self._wrappers[kind].plan(
            tables.queries,
            tables.pages,
            tables.indices,
            tables.last_page,
            kind.heads,
            kind.shape.heads,
            kind.shape.key_size,
            self._kv.block_tokens,
            head_dim_vo=kind.shape.value_size,
            causal=True,
            sm_scale=kind.scaling,
            window_left=kind.window_left,
            q_data_type=self._kv.dtype,
            kv_data_type=self._kv.dtype,
        )
        self._planned.add(kind)


class FlashInferDecode:
    """One query per request, in a CUDA graph: the tables live in buffers of fixed size that `plan` fills anew."""

    def __init__(self, kv: PagedKV, kinds: Sequence[Kind], batch: int, most_pages: int) -> None:
        self._kv = kv
        workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=kv.device)

        def buffer(size: int) -> torch.Tensor:
            return torch.empty(size, dtype=torch.int32, device=kv.device)

        self._wrappers = {
            kind: flashinfer.BatchDecodeWithPagedKVCacheWrapper(
                workspace,
                "NHD",
                use_cuda_graph=True,
                use_tensor_cores=True,
                paged_kv_indptr_buffer=buffer(batch + 1),
                paged_kv_indices_buffer=buffer(batch * most_pages),
                paged_kv_last_page_len_buffer=buffer(batch),
            )
            for kind in kinds
        }

    def plan(self, slices: Sequence[Slice]) -> None:
        """See Attention. Also before every replay: a plan depends on the lengths."""
        tables = PageTables(slices, self._kv.block_tokens)
        for kind, wrapper in self._wrappers.items():
            # The plan's pinned host buffer is reused: the copy of the plan before must have ended.
            torch.cuda.current_stream().synchronize()
            wrapper.plan(
                tables.pages,
                tables.indices,
                tables.last_page,
                kind.heads,
                kind.shape.heads,
                kind.shape.key_size,
                self._kv.block_tokens,
                window_left=kind.window_left,
                sm_scale=kind.scaling,
                q_data_type=self._kv.dtype,
                kv_data_type=self._kv.dtype,
            )

    def attend(self, layer: int, step: LayerStep) -> torch.Tensor:
        """See Attention."""
        kind = Kind(step.queries.shape[1], self._kv.shapes[layer], step.scaling, step.window)
        pages = (self._kv.keys[layer], self._kv.values[layer])
        out: torch.Tensor = self._wrappers[kind].run(step.queries.contiguous(), pages)
        return out
