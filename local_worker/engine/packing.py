"""A batch as the tensors of one forward pass: all requests' tokens in one row."""

from collections.abc import Sequence

import torch

from fairlead.sampling import Sampling
from local_worker.core.batch import Slice
from local_worker.core.request import Request
from local_worker.engine.kv import PagedKV


class Inputs:
    """Token ids, positions and slots [tokens]; `rows` [slices that sample] are where the next tokens are read."""

    def __init__(self, slices: Sequence[Slice], kv: PagedKV) -> None:
        self._kv = kv
        self.ids, self.positions, self.slots, self.rows = (
            torch.tensor(numbers, dtype=torch.int64, device=kv.device) for numbers in self._numbers(slices)
        )

    def fill(self, slices: Sequence[Slice]) -> None:
        """The same tensors with what another batch of the same shape holds: a captured graph reads these."""
        for tensor, numbers in zip(
            (self.ids, self.positions, self.slots, self.rows), self._numbers(slices), strict=True
        ):
            tensor.copy_(torch.tensor(numbers, dtype=torch.int64))

    def _numbers(self, slices: Sequence[Slice]) -> tuple[list[int], list[int], list[int], list[int]]:
        block = self._kv.block_tokens
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        rows: list[int] = []
        for piece in slices:
            ids += piece.request.tokens[piece.start : piece.stop]
            positions += range(piece.start, piece.stop)
            slots += [piece.pages[at // block] * block + at % block for at in range(piece.start, piece.stop)]
            if piece.samples:
                rows.append(len(ids) - 1)
        return ids, positions, slots, rows


def packed_order(slices: Sequence[Slice]) -> list[int]:
    """Indices with decoding requests side by side, longest first: attention computes neighbours together."""
    return sorted(range(len(slices)), key=lambda index: (_is_prefill(slices[index]), -slices[index].stop))


def _is_prefill(piece: Slice) -> bool:
    return piece.stop - piece.start > 1


def lone_slice(tokens: Sequence[int], start: int, pages: Sequence[int], *, samples: bool) -> Slice:
    """`tokens` from `start` on, of a request that belongs to nobody: for checks and padding."""
    request = Request(
        id="",
        client="",
        tokens=list(tokens),
        prompt_tokens=len(tokens),
        digests=[],
        chain_seed=0,
        sampling=Sampling(max_tokens=1),
        arrival=0,
    )
    return Slice(request, start, len(tokens), tuple(pages), samples)
