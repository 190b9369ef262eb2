"""FlashInfer's wrapper for prefill as its documentation describes it, in plain torch: slow, for any device.

What it refuses, the real one would refuse or compute wrongly.
"""

from math import log
from types import ModuleType
from typing import Any

import torch

from tests.unit.local_worker.engine.prefill_planner import Attention, Device, planned_bytes

Pages = tuple[torch.Tensor, torch.Tensor]  # keys and values, [pages, block, kv heads, size] each: NHD
Tables = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # qo_indptr, and paged_kv_ indptr, indices, last
PROCESSORS = 132  # of an H100


def attention(
    queries: torch.Tensor, pages: Pages, tables: Tables, *, scaling: float, window_left: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """[tokens, heads, size], and the logarithm of each softmax' sum to the base 2, [tokens, heads].

    A request's last query stands at its last token; it sees `window_left` before it.
    """
    qo_indptr, indptr, indices, last_page_len = (table.tolist() for table in tables)
    keys, values = pages
    out = torch.zeros(*queries.shape[:2], values.shape[-1], dtype=queries.dtype)
    sums = torch.zeros(queries.shape[:2])
    group = queries.shape[1] // keys.shape[2]
    for request, held in enumerate(last_page_len):
        first, stop = qo_indptr[request : request + 2]
        own = indices[slice(*indptr[request : request + 2])]
        length = (len(own) - 1) * keys.shape[1] + held
        context, content = keys[own].flatten(0, 1)[:length], values[own].flatten(0, 1)[:length]
        for row in range(first, stop):
            at = length - (stop - row)
            seen = slice(0 if window_left < 0 else max(0, at - window_left), at + 1)
            for head in range(queries.shape[1]):
                scores = context[seen, head // group] @ queries[row, head] * scaling
                out[row, head] = scores.softmax(dim=0) @ content[seen, head // group]
                sums[row, head] = scores.logsumexp(dim=0) / log(2)
    return out, sums


class BatchPrefillWithPagedKVCacheWrapper:
    """See FlashInfer; with CUDA graphs it reads its buffers when it runs."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: torch.Tensor | None = None,
        paged_kv_indptr_buf: torch.Tensor | None = None,
        paged_kv_indices_buf: torch.Tensor | None = None,
        paged_kv_last_page_len_buf: torch.Tensor | None = None,
        *,
        backend: str = "auto",
    ) -> None:
        assert (float_workspace_buffer.dtype, kv_layout, backend) == (torch.uint8, "NHD", "fa2")
        self._workspace = float_workspace_buffer
        self._buffers: Tables | None = None
        self._tokens: int | None = None
        self.plans = 0
        if use_cuda_graph:
            assert qo_indptr_buf is not None
            assert paged_kv_indptr_buf is not None
            assert paged_kv_indices_buf is not None
            assert paged_kv_last_page_len_buf is not None
            assert len(qo_indptr_buf) == len(paged_kv_indptr_buf) == len(paged_kv_last_page_len_buf) + 1
            self._buffers = (qo_indptr_buf, paged_kv_indptr_buf, paged_kv_indices_buf, paged_kv_last_page_len_buf)

    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        head_dim_vo: int,
        causal: bool,
        sm_scale: float,
        window_left: int,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        seq_lens: torch.Tensor,
        max_token_per_sequence: int,
    ) -> None:
        """See FlashInfer."""
        assert causal
        assert q_data_type == kv_data_type
        tables = qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len
        assert {table.dtype for table in (*tables, seq_lens)} == {torch.int32}
        # FlashInfer reads these on the host.
        assert all(table.device.type == "cpu" for table in (qo_indptr, paged_kv_indptr, seq_lens))
        assert len(qo_indptr) == len(paged_kv_indptr) == len(paged_kv_last_page_len) + 1 == len(seq_lens) + 1
        assert len(paged_kv_indices) == paged_kv_indptr[-1]
        held = (paged_kv_indptr.diff() - 1) * page_size + paged_kv_last_page_len
        assert held.tolist() == seq_lens.tolist()
        assert max_token_per_sequence == int(qo_indptr.diff().max())
        if self._buffers is not None:
            self._tokens = self._tokens or int(qo_indptr[-1])
            assert qo_indptr[-1] <= self._tokens, "the number of tokens is fixed by the first plan"
            assert len(qo_indptr) == len(self._buffers[0]), "the number of requests is fixed"
            assert len(paged_kv_indices) <= len(self._buffers[2])
            for buffer, table in zip(self._buffers, tables, strict=True):
                buffer[: len(table)].copy_(table)
        kind = Attention(
            num_qo_heads, num_kv_heads, head_dim_vo, None if window_left < 0 else window_left + 1, self._tokens
        )
        counts = (qo_indptr.diff().tolist(), paged_kv_indptr.diff().tolist())
        if len(self._workspace) < planned_bytes(Device(PROCESSORS), kind, *counts, page_size):
            raise RuntimeError("Buffer overflow when allocating memory for batch_prefill_tmp_v")
        self._tables: Tables = self._buffers or tables
        self._shape = (num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, page_size)
        self._scaling, self._window_left = sm_scale, window_left
        self.plans += 1

    def run(self, q: torch.Tensor, paged_kv_cache: Pages, *, return_lse: bool = False) -> Any:
        """See FlashInfer."""
        keys, values = paged_kv_cache
        assert q.is_contiguous()
        assert (q.shape[1], keys.shape[2], keys.shape[3], values.shape[3], keys.shape[1]) == self._shape
        assert len(q) == (self._tokens or self._tables[0][-1])
        out = attention(q, paged_kv_cache, self._tables, scaling=self._scaling, window_left=self._window_left)
        return out if return_lse else out[0]


def stand_in() -> Any:
    """A module to be imported as `flashinfer`."""
    module: Any = ModuleType("flashinfer")
    module.BatchPrefillWithPagedKVCacheWrapper = BatchPrefillWithPagedKVCacheWrapper
    return module
