"""Attention by FlashInfer on CUDA, over the same pages. This module is imported only when a CUDA device is used.

One prefill plan with a causal mask serves mixed batches. Each kind of layer (window, heads and scaling) has one
wrapper, which is planned once per step. Planning never waits for computation on the device: tables are copied from
pinned memory, and the memory in which a wrapper stages its plan is not overwritten before it has been copied.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flashinfer
import torch

from local_worker.core.batch import Slice
from local_worker.engine.attention import LayerStep
from local_worker.engine.flashinfer_workspace import workspace_bytes
from local_worker.engine.graph_sizes import GraphSize
from local_worker.engine.kv import LayerShape, PagedKV
from local_worker.engine.page_tables import PageLists, PageTables
from local_worker.engine.sinks import beside_sinks
from local_worker.engine.transfer import Milestone

BACKEND = "fa2"


@dataclass(frozen=True, slots=True)
class PlanKind:
    """The parameters of a FlashInfer plan that do not depend on the batch."""

    shape: LayerShape
    scaling: float
    window: int | None

    @property
    def window_left(self) -> int:
        """The window as FlashInfer counts it, without the query's own token, which transformers includes; -1: no
        window."""
        return -1 if self.window is None else self.window - 1


class FlashInfer:
    """Attention with FlashInfer's prefill kernels, for batches of any kind.

    Its workspace suffices for a device with so many `processors`, also for CUDA graphs of the sizes `graphs`.
    """

    def __init__(self, kv: PagedKV, processors: int, graphs: Sequence[GraphSize]) -> None:
        self._kv = kv
        # All wrappers share it, those of graphs too: they run one after another.
        self.workspace = torch.zeros(
            workspace_bytes(kv.shapes, processors, graphs), dtype=torch.uint8, device=kv.device
        )
        self._wrappers: dict[PlanKind, Any] = {}
        # A wrapper stages its plan in pinned memory, which must be copied before the next plan overwrites it. The copy
        # is queued before the step that uses it, so waiting for the copy waits only for earlier steps.
        self._staged = Milestone(kv.device)
        self._lists = PageLists()
        self._tables: PageTables

    @property
    def kinds(self) -> tuple[PlanKind, ...]:
        """The kinds of layers that have called `attend` so far."""
        return tuple(self._wrappers)

    def plan(self, slices: Sequence[Slice]) -> None:
        self._tables = PageTables(slices, self._kv.block_tokens, self._kv.device, self._lists)
        self._staged.wait()
        for kind, wrapper in self._wrappers.items():
            _plan(wrapper, kind, self._kv, self._tables, self._tables.indices)
        self._staged.set()

    def attend(self, layer: int, step: LayerStep) -> torch.Tensor:
        kind = _kind(self._kv, layer, step)
        if kind not in self._wrappers:
            self._wrappers[kind] = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
                self.workspace, "NHD", backend=BACKEND
            )
            _plan(self._wrappers[kind], kind, self._kv, self._tables, self._tables.indices)
            self._staged.set()
        return _run(self._wrappers[kind], self._kv, layer, step)


class FlashInferGraph:
    """The same attention for a CUDA graph: `plan` refills table buffers for a batch that is not larger than `size`."""

    def __init__(self, backend: FlashInfer, kv: PagedKV, size: GraphSize, most_pages: int) -> None:
        self._kv = kv
        self._requests = size.requests
        self._staged = Milestone(kv.device)
        self._lists = PageLists()

        def buffer(entries: int) -> torch.Tensor:
            return torch.zeros(entries, dtype=torch.int32, device=kv.device)

        self._wrappers: Mapping[PlanKind, Any] = {
            kind: flashinfer.BatchPrefillWithPagedKVCacheWrapper(
                backend.workspace,
                "NHD",
                use_cuda_graph=True,
                qo_indptr_buf=buffer(size.requests + 1),
                paged_kv_indptr_buf=buffer(size.requests + 1),
                # The batch with which a graph is captured may have a request with more pages than it is allowed to.
                paged_kv_indices_buf=buffer(size.requests * most_pages + -(-size.tokens // kv.block_tokens)),
                paged_kv_last_page_len_buf=buffer(size.requests),
                backend=BACKEND,
            )
            for kind in backend.kinds
        }

    def plan(self, slices: Sequence[Slice]) -> None:
        """Prepare a forward pass; see Attention. It is needed before every replay, since a plan depends on lengths.

        The first plan fixes the number of tokens, so it must have as many as the size.
        """
        tables = PageTables(slices, self._kv.block_tokens, self._kv.device, self._lists, self._requests)
        # If these were on the host, the wrapper would copy them and wait for the device.
        indices = tables.indices.to(self._kv.device, non_blocking=True)
        self._staged.wait()
        for kind, wrapper in self._wrappers.items():
            _plan(wrapper, kind, self._kv, tables, indices)
        self._staged.set()

    def attend(self, layer: int, step: LayerStep) -> torch.Tensor:
        return _run(self._wrappers[_kind(self._kv, layer, step)], self._kv, layer, step)


def _kind(kv: PagedKV, layer: int, step: LayerStep) -> PlanKind:
    return PlanKind(kv.shapes[layer], step.scaling, step.window)


def _plan(wrapper: Any, kind: PlanKind, kv: PagedKV, tables: PageTables, indices: torch.Tensor) -> None:
    wrapper.plan(
        tables.queries,
        tables.pages,
        indices,
        tables.last_page,
        kind.shape.query_heads,
        kind.shape.heads,
        kind.shape.key_size,
        kv.block_tokens,
        head_dim_vo=kind.shape.value_size,
        causal=True,
        sm_scale=kind.scaling,
        window_left=kind.window_left,
        q_data_type=kv.dtype,
        kv_data_type=kv.dtype,
        seq_lens=tables.lengths,
        max_token_per_sequence=tables.longest,
    )


def _run(wrapper: Any, kv: PagedKV, layer: int, step: LayerStep) -> torch.Tensor:
    pages = (kv.keys[layer], kv.values[layer])
    queries = step.queries.contiguous()
    if step.sinks is None:
        out: torch.Tensor = wrapper.run(queries, pages)
        return out
    out, log2_sums = wrapper.run(queries, pages, return_lse=True)
    return beside_sinks(out, log2_sums * math.log(2), step.sinks)
