"""The order of eviction: least recently used first, but pages that waiting requests match go last.

A waiting request is known to need its prefix, unlike the next user of any other page. Without this, clients whose turn
comes later lose their prefixes to those that are served now, and have to compute them again.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from itertools import chain

from local_worker.core.cached_block import CachedBlock
from local_worker.core.request import Request

NO_BLOCK = 0  # in place of the digest of a last block, for requests that match nothing


class IdlePages:
    """The published pages that no running request uses.

    `blocks` holds the contents of all published pages, `pages` the page of each digest. A page is not evicted before
    those that follow it: their content cannot be found without it.
    """

    def __init__(self, blocks: Mapping[int, CachedBlock], pages: Mapping[int, int]) -> None:
        self._blocks = blocks
        self._pages = pages
        self._followers: Counter[int] = Counter()  # page -> number of published pages that follow it
        self._unused: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._spared: OrderedDict[int, None] = OrderedDict()  # needed when their turn came; the first is evicted first
        self._ends: dict[Request, int] = {}  # waiting request -> digest of the last block that it matches
        self._awaited: Counter[int] = Counter()  # digest -> number of waiting requests whose match ends there

    def __len__(self) -> int:
        return len(self._unused) + len(self._spared)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the pages in no particular order."""
        return chain(self._unused, self._spared)

    def __contains__(self, page: int) -> bool:
        return page in self._unused or page in self._spared

    def published(self, page: int) -> None:
        """Record that `page`, which a running request uses, was published."""
        parent = self._blocks[page].parent
        if parent is not None:
            self._followers[parent] += 1

    def add(self, page: int) -> None:
        """Add a published page whose last user has just released it."""
        self._unused[page] = None

    def discard(self, page: int) -> None:
        """Remove `page`, which is used again, if it is idle."""
        self._unused.pop(page, None)
        self._spared.pop(page, None)

    def pop(self) -> int:
        """Remove and return the page to evict; there must be one."""
        while True:
            idle = self._unused or self._spared
            page, _ = idle.popitem(last=False)
            if self._followers[page] or (idle is self._unused and self._is_awaited(page)):
                self._spared[page] = None
                continue
            parent = self._blocks[page].parent
            if parent is not None:
                self._followers[parent] -= 1
            return page

    def _is_awaited(self, page: int) -> bool:
        return self._blocks[page].digest in self._awaited

    def is_waiting(self, request: Request) -> bool:
        """Return whether the pages that `request` matches are spared."""
        return request in self._ends

    def spare(self, request: Request) -> None:
        """Spare the pages that `request`, which waits, matches now, and none that it matched before."""
        digest = request.digests[request.matched_blocks - 1] if request.matched_blocks else NO_BLOCK
        if self._ends.get(request) != digest:
            self.left(request)
            self._ends[request] = digest
            self._awaited[digest] += 1

    def left(self, request: Request) -> None:
        """Spare no page for `request`, which waits no longer."""
        digest = self._ends.pop(request, None)
        if digest is None:
            return
        self._awaited[digest] -= 1
        if not self._awaited[digest]:
            del self._awaited[digest]
            self._spare_no_longer(digest)

    def _spare_no_longer(self, digest: int) -> None:
        """Make the page of `digest`, and the pages before it that were spared for it alone, the next to be evicted."""
        spared_for_it: list[int] = []
        page = self._pages.get(digest)
        while page is not None and page in self._spared and self._followers[page] == min(len(spared_for_it), 1):
            if self._is_awaited(page):
                break
            spared_for_it.append(page)
            page = self._blocks[page].parent
        for each in reversed(spared_for_it):
            del self._spared[each]
            self._unused[each] = None
            self._unused.move_to_end(each, last=False)

    def check_invariants(self) -> None:
        """Raise AssertionError when a page is in both orders, or a count is wrong."""
        assert not self._unused.keys() & self._spared.keys(), "a page is both unused and spared"
        followers = Counter(block.parent for block in self._blocks.values() if block.parent is not None)
        counted = {page: count for page, count in self._followers.items() if count}
        assert counted == {**followers}, f"followers {counted}, not {followers}"
        awaited = {**Counter(self._ends.values())}
        assert {**self._awaited} == awaited, f"awaited {self._awaited}, ends {self._ends}"
