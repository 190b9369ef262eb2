"""Attention by torch's SDPA: on the CPU, on CUDA without FlashInfer, and as the reference in tests.

Decoding requests are computed in groups of similar length, whose pages are gathered side by side; prefilling requests
are computed one by one. Keys and values are never repeated for grouped-query heads.
"""

from collections.abc import Sequence

import torch
from torch.nn.functional import scaled_dot_product_attention

from local_worker.core.batch import Slice
from local_worker.engine.attention import LayerStep
from local_worker.engine.kv import PagedKV
from local_worker.engine.sinks import attention_with_sinks
from local_worker.engine.transfer import upload

# Gathered context (tokens) of one group: larger ones do not fit in the processor's caches, in smaller ones the overhead
# of calls dominates.
GROUP_TOKENS = 4096
# A request joins a group only if its length is at least this fraction of the longest one's.
LEAST_FILL = 0.75


class Sdpa:
    """Attention by torch's SDPA, where `group_tokens` limits the padded context of a group.

    With 1 each request is computed alone, so that the rest of the batch does not influence it.
    """

    def __init__(self, kv: PagedKV, group_tokens: int = GROUP_TOKENS) -> None:
        self._kv = kv
        self._group_tokens = group_tokens
        self._parts: list[DecodeGroup | Prefill] = []
        self._keys, self._values = Scratch(), Scratch()

    def plan(self, slices: Sequence[Slice]) -> None:
        decodes = [piece for piece in slices if piece.stop - piece.start == 1]
        self._parts = []
        row = 0
        for group in self._groups(decodes):
            self._parts.append(DecodeGroup(group, row, self._kv))
            row += len(group)
        for piece in slices[len(decodes) :]:
            self._parts.append(Prefill(piece, row, self._kv))
            row += piece.stop - piece.start

    def _groups(self, decodes: Sequence[Slice]) -> list[list[Slice]]:
        """Group neighbours, which are sorted longest first."""
        groups: list[list[Slice]] = []
        for piece in decodes:
            group = groups[-1] if groups else []
            longest = group[0].stop if group else 0
            if group and (len(group) + 1) * longest <= self._group_tokens and piece.stop >= LEAST_FILL * longest:
                group.append(piece)
            else:
                groups.append([piece])
        return groups

    def attend(self, layer: int, step: LayerStep) -> torch.Tensor:
        keys, values = self._kv.keys[layer], self._kv.values[layer]
        out = step.queries.new_empty(*step.queries.shape[:2], values.shape[-1])
        for part in self._parts:
            if part.table is None:
                context = step.keys[part.rows], step.values[part.rows]
            else:
                context = self._keys.gather(keys, part.table), self._values.gather(values, part.table)
            out[part.rows] = part.attend(step, *context)
        return out


class Scratch:
    """Memory for gathered pages that is reused between calls, since allocating memory costs more than filling it."""

    def __init__(self) -> None:
        self._buffer = torch.empty(0)

    def gather(self, pages: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Return `pages` [pages, block, heads, size] at `table` [n] as [n * block, heads, size], valid until the next
        call."""
        rows = pages.flatten(1)
        need = len(table) * rows.shape[1]
        if need > self._buffer.numel() or self._buffer.dtype != pages.dtype:
            self._buffer = rows.new_empty(need)
        out = self._buffer[:need].view(len(table), -1)
        torch.index_select(rows, 0, table, out=out)
        return out.view(-1, *pages.shape[2:])


class DecodeGroup:
    """Requests with one query each, padded to whole pages of the longest."""

    def __init__(self, group: Sequence[Slice], row: int, kv: PagedKV) -> None:
        self.rows = slice(row, row + len(group))
        pages = -(-group[0].stop // kv.block_tokens)
        # The padding may be any page, since the mask hides it.
        padded = [page for piece in group for page in (*piece.pages[:pages], *[0] * (pages - len(piece.pages)))]
        self.table, self._lengths = upload((padded, [piece.stop for piece in group]), kv.device)
        self._context = pages * kv.block_tokens
        self._masks: dict[int | None, torch.Tensor] = {}

    def attend(self, step: LayerStep, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return [requests, heads, value size]. Query heads that share a key head become queries of one head."""
        requests, heads, size = step.queries[self.rows].shape
        kv_heads = keys.shape[1]
        queries = step.queries[self.rows].reshape(requests, kv_heads, heads // kv_heads, size)
        keys = keys.view(requests, self._context, kv_heads, -1).transpose(1, 2)
        values = values.view(requests, self._context, kv_heads, -1).transpose(1, 2)
        mask = self._mask(step.window)
        if step.sinks is None:
            out = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=step.scaling)
        else:
            sinks = step.sinks.view(kv_heads, -1)
            out = attention_with_sinks(queries, keys, values, mask, sinks, step.scaling)
        return out.reshape(requests, heads, -1)

    def _mask(self, window: int | None) -> torch.Tensor:
        """Return [requests, 1, 1, context], True where a query sees a key."""
        if window not in self._masks:
            positions = torch.arange(self._context, device=self._lengths.device)
            seen = positions < self._lengths[:, None]
            if window is not None:
                seen &= positions >= self._lengths[:, None] - window
            self._masks[window] = seen[:, None, None, :]
        return self._masks[window]


class Prefill:
    """A chunk of one request's prompt. `table` is None for the first chunk, whose own keys are the whole context."""

    def __init__(self, piece: Slice, row: int, kv: PagedKV) -> None:
        self.rows = slice(row, row + piece.stop - piece.start)
        self._start, self._stop = piece.start, piece.stop
        pages = piece.pages[: -(-piece.stop // kv.block_tokens)]
        self.table = upload((pages,), kv.device)[0] if piece.start else None
        self._masks: dict[int | None, torch.Tensor] = {}

    def attend(self, step: LayerStep, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Compute the attention output [tokens, heads, value size]."""
        tokens, heads, size = step.queries[self.rows].shape
        kv_heads = keys.shape[1]
        queries = step.queries[self.rows].view(tokens, kv_heads, -1, size).permute(1, 2, 0, 3)
        keys = keys[: self._stop].transpose(0, 1)[:, None]
        values = values[: self._stop].transpose(0, 1)[:, None]
        if step.sinks is None:
            out = self._attention(queries, keys, values, step)
        else:
            mask = self._mask(step.window, keys.device)
            out = attention_with_sinks(queries, keys, values, mask, step.sinks.view(kv_heads, -1, 1), step.scaling)
        return out.permute(2, 0, 1, 3).reshape(tokens, heads, -1)

    def _attention(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, step: LayerStep
    ) -> torch.Tensor:
        is_causal = self._start == 0 and (step.window is None or step.window >= self._stop)
        return scaled_dot_product_attention(
            queries,
            keys.expand(-1, queries.shape[1], -1, -1),
            values.expand(-1, queries.shape[1], -1, -1),
            attn_mask=None if is_causal else self._mask(step.window, keys.device),
            is_causal=is_causal,
            scale=step.scaling,
        )

    def _mask(self, window: int | None, device: torch.device) -> torch.Tensor:
        """Return [tokens, context], causal within the window."""
        if window not in self._masks:
            queries = torch.arange(self._start, self._stop, device=device)[:, None]
            keys = torch.arange(self._stop, device=device)
            seen = keys <= queries
            if window is not None:
                seen &= keys > queries - window
            self._masks[window] = seen
        return self._masks[window]
