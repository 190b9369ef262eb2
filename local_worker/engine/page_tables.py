"""The page tables of a batch in FlashInfer's format."""

from collections.abc import Sequence
from itertools import accumulate

import torch

from local_worker.core.batch import Slice
from local_worker.engine.transfer import staged


class PageTables:
    """int32 tensors on the host for a batch of R requests, ready to be copied to `device`.

    `queries` [R + 1] and `pages` [R + 1] are the offsets of each request's queries and pages, with the total at the
    end. `indices` are the page numbers. `last_page` [R] is the number of tokens in each request's last page, `lengths`
    [R] the number in all its pages; a request's last query belongs to the last of these tokens.
    """

    def __init__(self, slices: Sequence[Slice], block_tokens: int, device: torch.device) -> None:
        used = [-(-piece.stop // block_tokens) for piece in slices]
        pages = [page for piece, count in zip(slices, used, strict=True) for page in piece.pages[:count]]

        def column(numbers: Sequence[int]) -> torch.Tensor:
            return staged(numbers, torch.int32, device)

        self.queries = column([0, *accumulate(piece.stop - piece.start for piece in slices)])
        self.pages = column([0, *accumulate(used)])
        self.indices = column(pages)
        self.last_page = column([(piece.stop - 1) % block_tokens + 1 for piece in slices])
        self.lengths = column([piece.stop for piece in slices])
