"""Attention by FlashInfer on CUDA, over the same pages. This module is imported only when a CUDA device is used.

One prefill plan with a causal mask serves mixed batches. Each kind of layer (window, heads and scaling) has one
wrapper, which is planned once per step. Planning never waits for computation on the device: tables are copied from
pinned memory, and the memory in which a wrapper stages its plan is not overwritten before it has been copied.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flashinfer
import torch

from local_worker.core.batch import Slice
from local_worker.engine.attention import LayerStep
from local_worker.engine.kv import LayerShape, PagedKV
from local_worker.engine.page_tables import PageTables
from local_worker.engine.transfer import Milestone

WORKSPACE_BYTES = 128 << 20
BACKEND = "fa2"


@dataclass(frozen=True, slots=True)
class PlanKind:
    """The parameters of a FlashInfer plan that do not depend on the batch."""

    heads: int
    shape: LayerShape
    scaling: float
    window: int | None

    @property
    def window_left(self) -> int:
        """The window as FlashInfer counts it, without the query's own token, which transformers includes; -1: no
        window."""
        return -1 if self.window is None else self.window - 1


class FlashInfer:
    """Attention with FlashInfer's prefill kernels, for batches of any kind."""

    def __init__(self, kv: PagedKV) -> None:
        self._kv = kv
        # All wrappers share it, those of graphs too: they run one after another.
        self.workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=kv.device)
        self._wrappers: dict[PlanKind, Any] = {}
        # A wrapper stages its plan in pinned memory, which must be copied before the next plan overwrites it. The copy
        # is queued before the step that uses it, so waiting for the copy waits only for earlier steps.
        self._staged = Milestone(kv.device)
        self._tables: PageTables

    @property
    def kinds(self) -> tuple[PlanKind, ...]:
        """The kinds of layers that have called `attend` so far."""
        return tuple(self._wrappers)

    def plan(self, slices: Sequence[Slice]) -> None:
        """See Attention."""
        self._tables = PageTables(slices, self._kv.block_tokens, self._kv.device)
        self._staged.wait()
        for kind in self._wrappers:
            self._plan(kind)
        self._staged.set()

    def attend(self, layer: int, step: LayerStep) -> torch.Tensor:
        """See Attention."""
        kind = PlanKind(step.queries.shape[1], self._kv.shapes[layer], step.scaling, step.window)
        if kind not in self._wrappers:
            self._wrappers[kind] = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
                self.workspace, "NHD", backend=BACKEND
            )
            self._plan(kind)
            self._staged.set()
        pages = (self._kv.keys[layer], self._kv.values[layer])
        out: torch.Tensor = self._wrappers[kind].run(step.queries.contiguous(), pages)
        return out

    def _plan(self, kind: PlanKind) -> None:
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
            seq_lens=tables.lengths,
        )


class FlashInferDecode:
    """Attention with one query per request for a CUDA graph: `plan` refills table buffers of fixed size."""

    def __init__(
        self, kv: PagedKV, kinds: Sequence[PlanKind], workspace: torch.Tensor, batch: int, most_pages: int
    ) -> None:
        self._kv = kv
        self._staged = Milestone(kv.device)

        def buffer(size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.int32, device=kv.device)

        self._wrappers = {
            kind: flashinfer.BatchDecodeWithPagedKVCacheWrapper(
                workspace,
                "NHD",
                use_cuda_graph=True,
                use_tensor_cores=True,
                paged_kv_indptr_buffer=buffer(batch + 1),
                paged_kv_indices_buffer=buffer(batch * most_pages),
                paged_kv_last_page_len_buffer=buffer(batch),
                backend=BACKEND,
            )
            for kind in kinds
        }

    def plan(self, slices: Sequence[Slice]) -> None:
        """Prepare a forward pass; see Attention. It is needed before every replay, since a plan depends on lengths."""
        tables = PageTables(slices, self._kv.block_tokens, self._kv.device)
        # If these were on the host, the wrapper would copy them and wait for the device.
        indices = tables.indices.to(self._kv.device, non_blocking=True)
        self._staged.wait()
        for kind, wrapper in self._wrappers.items():
            wrapper.plan(
                tables.pages,
                indices,
                tables.last_page,
                kind.heads,
                kind.shape.heads,
                kind.shape.key_size,
                self._kv.block_tokens,
                window_left=kind.window_left,
                sm_scale=kind.scaling,
                q_data_type=self._kv.dtype,
                kv_data_type=self._kv.dtype,
                seq_lens=tables.lengths,
            )
        self._staged.set()

    def attend(self, layer: int, step: LayerStep) -> torch.Tensor:
        """See Attention."""
        kind = PlanKind(step.queries.shape[1], self._kv.shapes[layer], step.scaling, step.window)
        pages = (self._kv.keys[layer], self._kv.values[layer])
        out: torch.Tensor = self._wrappers[kind].run(step.queries.contiguous(), pages)
        return out
