"""The KV cache of an engine that manages its pages itself: the blocks that it says are cached, and the pages promised.

The engine's own events say which blocks it has. A request is promised pages for its whole budget before it goes to the
engine, so that the engine never has to preempt one of ours. Which pages these are, only the engine knows.
"""

from collections import Counter
from collections.abc import Sequence

from local_worker.core.block_cache import BlockChanges
from local_worker.core.page_report import PageReport
from local_worker.core.request import Request
from serving.blocks import Link


class EngineCache:
    """A BlockCache of `pages` pages of `block_tokens` tokens each, all of which the engine may use.

    A page counts for each request that fills it, and once for all requests that found it cached. While the request that
    filled a page runs, the page of others that found it so counts twice: never is more promised than the engine has.
    """

    def __init__(self, pages: int, block_tokens: int) -> None:
        self.pages = pages
        self.block_tokens = block_tokens
        self.occupied = 0  # number of pages that requests of others hold, as far as the engine tells
        self._parents: dict[int, int] = {}  # digest of each cached block -> its parent (0: no parent)
        self.changes = BlockChanges()
        self._filled = 0  # number of pages promised to running requests that did not find them cached
        self._found: Counter[int] = Counter()  # digest -> number of running requests that found it cached

    @property
    def tokens_used(self) -> int:
        """The capacity, in tokens, of the pages that are promised to running requests."""
        return (self._filled + len(self._found)) * self.block_tokens

    def pages_for(self, tokens: int) -> int:
        """Return the number of pages that `tokens` tokens occupy; the last page may be partly filled."""
        return -(-tokens // self.block_tokens)

    def cached(self, links: Sequence[Link]) -> None:
        """Record blocks that the engine has cached, parents first."""
        self._parents.update(links)
        self.changes.cached(links)

    def evicted(self, digests: Sequence[int]) -> None:
        """Record blocks of which the engine has no copy any more; ignore unknown ones."""
        self.changes.evicted([digest for digest in digests if self._parents.pop(digest, None) is not None])

    def arrived(self, request: Request) -> None:
        self.match(request)

    def match(self, request: Request) -> int:
        """Return the number of `request`'s prompt tokens that are cached now; see BlockCache.

        It relies on the digests, since only the engine has the contents. A wrong match changes a charge, not an output.
        """
        blocks, most = request.matched_blocks, (len(request.tokens) - 1) // self.block_tokens
        most = min(most, len(request.digests))
        while blocks and request.digests[blocks - 1] not in self._parents:
            blocks -= 1
        while blocks < most and request.digests[blocks] in self._parents:
            blocks += 1
        request.matched_blocks = blocks
        return blocks * self.block_tokens

    def admit(self, request: Request, tokens: int) -> int | None:
        """Promise `request` pages for `tokens` tokens; see BlockCache."""
        matched_blocks = self.match(request) // self.block_tokens
        found = request.digests[:matched_blocks]
        filled = self.pages_for(tokens) - matched_blocks
        needed = filled + sum(digest not in self._found for digest in found)
        if self._filled + len(self._found) + needed > self.pages - self.occupied:
            return None
        self._filled += filled
        self._found.update(found)
        request.pages = list(range(matched_blocks + filled))  # which pages these are, only the engine knows
        request.shared = matched_blocks
        request.computed = matched_blocks * self.block_tokens
        return len(request.tokens) - request.computed

    def is_underway(self, request: Request) -> bool:
        """Return False: the engine itself decides what it computes twice."""
        return False

    def preempted(self, request: Request) -> None:
        self.finished(request)
        self.match(request)

    def withdrawn(self, request: Request) -> None:
        """Do nothing: only the engine spares pages."""

    def finished(self, request: Request) -> None:
        """Take back the pages that were promised to `request`."""
        self._filled -= len(request.pages) - request.shared
        for digest in request.digests[: request.shared]:
            self._found[digest] -= 1
            if not self._found[digest]:
                del self._found[digest]
        request.pages, request.shared = [], 0

    def report(self) -> PageReport:
        """Return an empty report: only the engine knows whose pages it evicts."""
        return PageReport()

    def check_invariants(self, running: list[Request]) -> None:
        """Raise AssertionError unless exactly the pages of the `running` requests are promised, and they fit."""
        filled = sum(len(request.pages) - request.shared for request in running)
        found = Counter(digest for request in running for digest in request.digests[: request.shared])
        assert self._filled == filled, f"{self._filled} pages are promised, running requests have {filled}"
        assert self._found == found, f"{self._found} found, running requests found {found}"
        assert self._filled + len(self._found) <= self.pages, f"{self._filled} + {len(self._found)} of {self.pages}"
