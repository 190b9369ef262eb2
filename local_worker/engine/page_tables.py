"""The page tables of a batch in FlashInfer's format."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

from local_worker.core.batch import Slice
from local_worker.engine.transfer import pinned, staged

Numbers = npt.NDArray[np.int32]


class PageLists:
    """The page numbers of the previous batch's requests, as arrays.

    A decoding request gets a page once in many steps, and to compare its page numbers with those of the previous step
    costs a tenth of converting them.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[tuple[int, ...], Numbers]] = {}

    def of(self, slices: Sequence[Slice]) -> list[Numbers]:
        """Return the page numbers of each slice, and keep them for the next batch."""
        arrays = [self._array(piece) for piece in slices]
        self._arrays = {piece.request: (piece.pages, array) for piece, array in zip(slices, arrays, strict=True)}
        return arrays

    def _array(self, piece: Slice) -> Numbers:
        pages, array = self._arrays.get(piece.request, ((), np.empty(0, np.int32)))
        return array if pages == piece.pages else np.array(piece.pages, np.int32)


class PageTables:
    """int32 tensors on the host for a batch of R requests, ready to be copied to `device`.

    `queries` [R + 1] and `pages` [R + 1] are the offsets of each request's queries and pages, with the total at the
    end. `indices` are the page numbers. `last_page` [R] is the number of tokens in each request's last page, `lengths`
    [R] the number in all its pages; a request's last query belongs to the last of these tokens. `longest` is the
    largest number of queries of one request.

    The tables have at least `requests` entries: the last ones have neither queries nor pages.
    """

    def __init__(
        self, slices: Sequence[Slice], block_tokens: int, device: torch.device, lists: PageLists, requests: int = 0
    ) -> None:
        idle = [0] * (requests - len(slices))
        used = [-(-piece.stop // block_tokens) for piece in slices]
        counts = [piece.stop - piece.start for piece in slices]
        pages = [array[:count] for array, count in zip(lists.of(slices), used, strict=True)]

        def column(numbers: Sequence[int]) -> torch.Tensor:
            return staged(numbers, torch.int32, device)

        self.longest = max(counts)
        self.queries = column([0, *accumulate([*counts, *idle])])
        self.pages = column([0, *accumulate([*used, *idle])])
        self.indices = pinned(torch.from_numpy(np.concatenate(pages)), device)
        self.last_page = column(
            [*((piece.stop - 1) % block_tokens + 1 for piece in slices), *(block_tokens for _ in idle)]
        )
        self.lengths = column([*(piece.stop for piece in slices), *idle])
