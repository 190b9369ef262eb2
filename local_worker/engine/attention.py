"""Attention over paged keys and values with torch's SDPA, as transformers' modelling code calls it.

Queries of all requests come packed in one row. Requests that decode are computed together, padded to the longest
context; requests that prefill one by one. Grouped-query heads are folded into the query length, so that keys and values
are never repeated.
"""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from local_worker.core.batch import Batch, Slice
from local_worker.engine.kv import PagedKV


class UnsupportedModel(Exception):
    """The model asks its attention for something this engine would compute wrongly."""


class Layout:
    """Where one batch's tokens are, for all layers: computed once per step."""

    def __init__(self, batch: Batch, kv: PagedKV) -> None:
        self._contexts = [kv.slots(piece.pages, 0, piece.stop) for piece in batch.slices]
        self.written = torch.cat(
            [context[piece.start :] for context, piece in zip(self._contexts, batch.slices, strict=True)]
        )
        self.decodes: list[int] = []  # rows of the packed input, one per decoding request
        self.prefills: list[tuple[int, Slice, torch.Tensor]] = []  # first row, slice, context slots
        decoding = []
        row = 0
        for piece, context in zip(batch.slices, self._contexts, strict=True):
            if piece.stop - piece.start == 1:
                self.decodes.append(row)
                decoding.append(context)
            else:
                self.prefills.append((row, piece, context))
            row += piece.stop - piece.start
        self.decode_rows = torch.tensor(self.decodes, dtype=torch.int64)
        self.decode_slots = torch.nn.utils.rnn.pad_sequence(decoding, batch_first=True) if decoding else None
        self._lengths = torch.tensor([len(context) for context in decoding], dtype=torch.int64)
        self._masks: dict[tuple[int | None, int], torch.Tensor] = {}

    def decode_mask(self, window: int | None) -> torch.Tensor:
        """[requests, 1, 1, longest context]: True where a key is seen."""
        key = (window, -1)
        if key not in self._masks:
            assert self.decode_slots is not None
            positions = torch.arange(self.decode_slots.shape[1])
            seen = positions < self._lengths[:, None]
            if window is not None:
                seen &= positions >= self._lengths[:, None] - window
            self._masks[key] = seen[:, None, None, :]
        return self._masks[key]

    def prefill_mask(self, index: int, window: int | None) -> torch.Tensor:
        """[slice tokens, context]: causal, within the window."""
        key = (window, index)
        if key not in self._masks:
            _, piece, _ = self.prefills[index]
            queries = torch.arange(piece.start, piece.stop)[:, None]
            keys = torch.arange(piece.stop)
            seen = keys <= queries
            if window is not None:
                seen &= keys > queries - window
            self._masks[key] = seen
        return self._masks[key]


class PagedAttention:
    """Registered with transformers' AttentionInterface; `layout` is set before each forward pass."""

    def __init__(self, kv: PagedKV) -> None:
        self._kv = kv
        self.layout: Layout

    def __call__(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        scaling: float,
        sliding_window: int | None = None,
        softcap: float | None = None,
        s_aux: torch.Tensor | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        """[1, heads, tokens, size] in, [1, tokens, heads, size] out."""
        if attention_mask is not None or softcap is not None or s_aux is not None:
            raise UnsupportedModel("attention masks, soft caps and attention sinks are not supported")
        layer, layout = int(module.layer_idx), self.layout  # type: ignore[arg-type]
        keys, values = self._kv.keys[layer], self._kv.values[layer]
        keys[layout.written] = key[0].transpose(0, 1)
        values[layout.written] = value[0].transpose(0, 1)
        queries = query[0].transpose(0, 1)  # [tokens, heads, size]
        out = queries.new_empty(queries.shape[0], queries.shape[1], values.shape[2])
        if layout.decode_slots is not None:
            out[layout.decode_rows] = self._decode(queries[layout.decode_rows], keys, values, scaling, sliding_window)
        for index, (row, piece, context) in enumerate(layout.prefills):
            rows = slice(row, row + piece.stop - piece.start)
            mask = layout.prefill_mask(index, sliding_window)
            out[rows] = _prefill(queries[rows], keys[context], values[context], mask, scaling)
        return out[None], None

    def _decode(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float, window: int | None
    ) -> torch.Tensor:
        slots = self.layout.decode_slots
        requests, heads, size = queries.shape
        folded = queries.view(requests, keys.shape[1], heads // keys.shape[1], size)
        mask = self.layout.decode_mask(window)
        out = scaled_dot_product_attention(
            folded, keys[slots].transpose(1, 2), values[slots].transpose(1, 2), attn_mask=mask, scale=scaling
        )
        return out.reshape(requests, heads, values.shape[2])


def _prefill(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, scaling: float
) -> torch.Tensor:
    """One request: [tokens, heads, size] queries against [context, kv heads, size]."""
    tokens, heads, size = queries.shape
    groups = heads // keys.shape[1]
    folded = queries.view(tokens, -1, groups, size).permute(1, 2, 0, 3).reshape(1, -1, groups * tokens, size)
    out = scaled_dot_product_attention(
        folded,
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        attn_mask=mask.repeat(groups, 1),
        scale=scaling,
    )
    return out.view(-1, groups, tokens, values.shape[2]).permute(2, 0, 1, 3).reshape(tokens, heads, -1)
