"""The tensors of one forward pass: the tokens of all requests of a batch in one row."""

from collections.abc import Sequence

import torch

from local_worker.core.batch import Slice
from local_worker.engine.kv import PagedKV
from local_worker.engine.transfer import upload
from serving.sampling_params import SamplingParams


class BatchInputs:
    """Token ids, positions and slots [tokens] of a batch's `slices`, sorted into the order of computation.

    `rows` are the row indices whose logits are needed, in the batch's own order: first those from which the next tokens
    are sampled [slices that sample], then those of tokens that are scored [scored tokens of all slices].
    """

    def __init__(self, slices: Sequence[Slice], kv: PagedKV) -> None:
        order = packed_order(slices)
        self.slices = [slices[index] for index in order]
        ends: dict[int, int] = {}
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        for index, piece in zip(order, self.slices, strict=True):
            ids += _known(piece)
            positions += range(piece.start, piece.stop)
            slots += _slots(piece, kv.block_tokens)
            ends[index] = len(ids) - 1
        rows = [ends[index] for index, piece in enumerate(slices) if piece.samples]
        for index, piece in enumerate(slices):
            if piece.scored:
                first = ends[index] - (piece.stop - piece.start - 1)
                rows += range(first, first + len(piece.scored))
        missing = [(ends[index], piece.source) for index, piece in enumerate(slices) if piece.source is not None]
        columns = (ids, positions, slots, rows, [row for row, _ in missing], [source for _, source in missing])
        self.ids, self.positions, self.slots, self.rows, self._missing, self._sources = upload(columns, kv.device)

    def complete(self, sampled: torch.Tensor) -> None:
        """Fill in the ids that the host does not know from `sampled`, the tokens sampled for the previous batch."""
        if len(self._missing):
            self.ids.index_copy_(0, self._missing, sampled.index_select(0, self._sources))

    def overwrite(self, other: "BatchInputs", idle_slot: int) -> None:
        """Copy `other`, a batch that is not larger, into these tensors, which a captured graph reads.

        The remaining tokens are those of earlier batches. They are computed in vain, and write to `idle_slot`.
        """
        tokens = len(other.slots)
        self.ids[:tokens].copy_(other.ids)
        self.positions[:tokens].copy_(other.positions)
        self.slots[:tokens].copy_(other.slots)
        self.slots[tokens:].fill_(idle_slot)
        self.rows[: len(other.rows)].copy_(other.rows)


def _known(piece: Slice) -> tuple[int, ...]:
    return piece.tokens if piece.source is None else (0,)


def _slots(piece: Slice, block: int) -> list[int]:
    return [piece.pages[at // block] * block + at % block for at in range(piece.start, piece.stop)]


def packed_order(slices: Sequence[Slice]) -> list[int]:
    """Return the indices of `slices` with decoding requests first, longest first, as attention groups neighbours."""
    return sorted(range(len(slices)), key=lambda index: (_is_prefill(slices[index]), -slices[index].stop))


def _is_prefill(piece: Slice) -> bool:
    return piece.stop - piece.start > 1


def lone_slice(tokens: Sequence[int], start: int, pages: Sequence[int], *, samples: bool) -> Slice:
    """Return a slice of `tokens` from index `start` on that belongs to no request, for checks and padding."""
    stop = len(tokens)
    return Slice(0, tuple(tokens[start:]), start, stop, tuple(pages), samples, SamplingParams(max_tokens=1), stop)
