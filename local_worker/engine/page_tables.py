"""Which pages a batch's requests have, as FlashInfer takes it."""

from collections.abc import Sequence
from itertools import accumulate

import torch

from local_worker.core.batch import Slice
from local_worker.engine.transfer import staged


class PageTables:
    """int32 on the host, ready to be copied to `device`, of R requests.

    `queries` [R + 1] and `pages` [R + 1] are where each request's queries and pages begin among all, and where the last
    one's end; `indices` are the pages' numbers; `last_page` [R] is how many tokens the last page of each holds, and
    `lengths` [R] how many all of its pages do: the last of its queries is the last of these tokens.
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
