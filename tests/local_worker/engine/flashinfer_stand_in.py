"""FlashInfer's two wrappers as its documentation describes them, in plain torch: slow, for any device.

What they refuse, the real ones would refuse or compute wrongly.
"""

from types import ModuleType
from typing import Any

import torch

Pages = tuple[torch.Tensor, torch.Tensor]  # keys and values, [pages, block, kv heads, size] each: NHD
Tables = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # qo_indptr, and paged_kv_ indptr, indices, last


def attention(queries: torch.Tensor, pages: Pages, tables: Tables, *, scaling: float, window_left: int) -> torch.Tensor:
    """[tokens, heads, size]. A request's last query stands at its last token; it sees `window_left` before it."""
    qo_indptr, indptr, indices, last_page_len = (table.tolist() for table in tables)
    keys, values = pages
    out = torch.empty(*queries.shape[:2], values.shape[-1], dtype=queries.dtype)
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
                weights = (context[seen, head // group] @ queries[row, head] * scaling).softmax(dim=0)
                out[row, head] = weights @ content[seen, head // group]
    return out


class Wrapper:
    """What both have in common."""

    def __init__(self, float_workspace_buffer: torch.Tensor, kv_layout: str, backend: str) -> None:
        assert (float_workspace_buffer.dtype, kv_layout, backend) == (torch.uint8, "NHD", "fa2")
        self.tables: Tables | None = None
        self.plans = 0

    def check(self, tables: Tables, seq_lens: torch.Tensor, page_size: int) -> None:
        """int32, on the host where the wrapper reads them there, and of one batch."""
        qo_indptr, indptr, indices, last_page_len = tables
        assert {table.dtype for table in (*tables, seq_lens)} == {torch.int32}
        assert all(table.device.type == "cpu" for table in (qo_indptr, indptr, last_page_len, seq_lens))
        assert len(qo_indptr) == len(indptr) == len(last_page_len) + 1
        assert len(indices) == indptr[-1]
        assert ((indptr.diff() - 1) * page_size + last_page_len).tolist() == seq_lens.tolist()
        self.plans += 1

    def shape(self, queries: torch.Tensor, pages: Pages) -> tuple[int, ...]:
        """Heads, key heads, sizes of keys and values, and of a page."""
        keys, values = pages
        assert queries.is_contiguous()
        return queries.shape[1], keys.shape[2], keys.shape[3], values.shape[3], keys.shape[1]


class BatchPrefillWithPagedKVCacheWrapper(Wrapper):
    """See FlashInfer."""

    def __init__(self, float_workspace_buffer: torch.Tensor, kv_layout: str = "NHD", *, backend: str = "auto") -> None:
        super().__init__(float_workspace_buffer, kv_layout, backend)

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
    ) -> None:
        """See FlashInfer."""
        assert causal
        assert q_data_type == kv_data_type
        self.tables = qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len
        self.check(self.tables, seq_lens, page_size)
        self._shape = (num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, page_size)
        self._scaling, self._window_left = sm_scale, window_left

    def run(self, q: torch.Tensor, paged_kv_cache: Pages) -> torch.Tensor:
        """See FlashInfer."""
        assert self.tables is not None
        assert self.shape(q, paged_kv_cache) == self._shape
        assert len(q) == self.tables[0][-1]
        return attention(q, paged_kv_cache, self.tables, scaling=self._scaling, window_left=self._window_left)


class BatchDecodeWithPagedKVCacheWrapper(Wrapper):
    """See FlashInfer; with CUDA graphs, whose buffers it reads when it runs."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        *,
        use_cuda_graph: bool,
        use_tensor_cores: bool,
        paged_kv_indptr_buffer: torch.Tensor,
        paged_kv_indices_buffer: torch.Tensor,
        paged_kv_last_page_len_buffer: torch.Tensor,
        backend: str = "auto",
    ) -> None:
        super().__init__(float_workspace_buffer, kv_layout, backend)
        assert use_cuda_graph
        assert use_tensor_cores
        self._batch = len(paged_kv_last_page_len_buffer)
        self._buffers = (paged_kv_indptr_buffer, paged_kv_indices_buffer, paged_kv_last_page_len_buffer)

    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        window_left: int,
        sm_scale: float,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        seq_lens: torch.Tensor,
    ) -> None:
        """See FlashInfer."""
        assert q_data_type == kv_data_type
        assert len(last_page_len) == self._batch, "the size of the batch is fixed"
        self.check(
            (torch.arange(self._batch + 1, dtype=torch.int32), indptr, indices, last_page_len), seq_lens, page_size
        )
        for buffer, table in zip(self._buffers, (indptr, indices, last_page_len), strict=True):
            buffer[: len(table)].copy_(table)
        self._shape = (num_qo_heads, num_kv_heads, head_dim, head_dim, page_size)
        self._scaling, self._window_left = sm_scale, window_left

    def run(self, q: torch.Tensor, paged_kv_cache: Pages) -> torch.Tensor:
        """See FlashInfer."""
        assert self.shape(q, paged_kv_cache) == self._shape
        assert len(q) == self._batch
        tables = (torch.arange(self._batch + 1), *self._buffers)
        return attention(q, paged_kv_cache, tables, scaling=self._scaling, window_left=self._window_left)


def stand_in() -> Any:
    """A module to be imported as `flashinfer`."""
    module: Any = ModuleType("flashinfer")
    module.BatchPrefillWithPagedKVCacheWrapper = BatchPrefillWithPagedKVCacheWrapper
    module.BatchDecodeWithPagedKVCacheWrapper = BatchDecodeWithPagedKVCacheWrapper
    return module
