"""The prefix cache: `digest -> page` over the block chain, and the pages themselves.

A page is free, referenced by running requests, or idle: published under its digest and referenced by nobody. A
published page keeps its token ids and its parent page, and a match compares both: a forged digest never reads another
prefix's page (design section 3).
"""

from collections import OrderedDict
from typing import NamedTuple

from fairlead.token_ids import pack_ids
from local_worker.core.request import Request
from serving.blocks import chain, unpack_digests

Link = tuple[int, int]  # a cached block's digest, and its parent's or 0


class CachedBlock(NamedTuple):
    """What a published page holds."""

    digest: int
    tokens: tuple[int, ...]
    parent: int | None  # the page of the block before


class PrefixCache:
    """Owns `pages` pages of `block_tokens` tokens each. Every method is O(pages of the request)."""

    def __init__(self, pages: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.pages = pages
        self._free = list(range(pages - 1, -1, -1))
        self._references = [0] * pages
        self._blocks: dict[int, CachedBlock] = {}  # page -> content, for published pages
        self._by_digest: dict[int, int] = {}  # digest -> page
        # Least recently used first. A request's pages are released last block first, so a leaf is always older than
        # its parent, and the oldest idle page is a leaf.
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._news: dict[int, int | None] = {}  # digest -> its parent (0: none), or None when evicted; as it happened
        self._new: list[int] = []  # digests that became available since `take_new`

    @property
    def referenced(self) -> int:
        """Pages that running requests use."""
        return self.pages - len(self._free) - len(self._idle)

    @property
    def tokens_used(self) -> int:
        """Capacity, in tokens, of the pages that running requests use."""
        return self.referenced * self.block_tokens

    def match(self, request: Request) -> int:
        """Prompt tokens that the cache holds now; never all of them, since one must be computed to go on.

        Looks on from where it stopped the last time: O(blocks that came or went since). Contents are compared when a
        block is first matched, and all again at admission.
        """
        blocks, most = request.matched_blocks, self._most_blocks(request)
        while blocks and request.digests[blocks - 1] not in self._by_digest:
            blocks -= 1
        page = self._by_digest[request.digests[blocks - 1]] if blocks else None
        while blocks < most and (page := self._next(request, blocks, page)) is not None:
            blocks += 1
        request.matched_blocks = blocks
        return blocks * self.block_tokens

    def admit(self, request: Request, tokens: int) -> int | None:
        """Give `request` pages for `tokens`; returns those left to compute, or None when they do not fit now."""
        matched = self._match(request)
        fresh = self.pages_for(tokens) - len(matched)
        idle = len(self._idle) - sum(1 for page in matched if page in self._idle)
        if fresh > len(self._free) + idle:
            return None
        for page in matched:
            self._reference(page)
        request.pages = matched + self._take(fresh)
        request.shared = len(matched)
        request.computed = len(matched) * self.block_tokens
        return len(request.tokens) - request.computed

    def extend(self, request: Request, tokens: int) -> bool:
        """Give an admitted `request` what it lacks for `tokens`; False, changing nothing, when it does not fit now."""
        fresh = self.pages_for(tokens) - len(request.pages)
        if fresh <= 0:
            return True
        if fresh > len(self._free) + len(self._idle):
            return False
        request.pages += self._take(fresh)
        return True

    def pages_for(self, tokens: int) -> int:
        """Pages that so many tokens fill, the last one perhaps in part."""
        return -(-tokens // self.block_tokens)

    def publish(self, request: Request, tokens: int) -> None:
        """Make the full blocks of `request`'s first `tokens`, which are computed, available to others.

        A block that another request published meanwhile is adopted and the own copy freed, so that a published page's
        parent is always referenced for as long as the page is.
        """
        size, pages, digests = self.block_tokens, request.pages, request.digests
        if tokens // size <= request.shared:
            return
        for index in range(request.shared, tokens // size):
            content = tuple(request.tokens[index * size : (index + 1) * size])
            if index == len(digests):
                seed = request.chain_seed if index == request.public_blocks else digests[-1]
                digests += unpack_digests(chain(pack_ids(content), size, seed))
            digest, own = digests[index], pages[index]
            block = CachedBlock(digest, content, pages[index - 1] if index else None)
            page = self._by_digest.setdefault(digest, own)
            if page == own:
                self._blocks[own] = block
                self._tell(digest, digests[index - 1] if index else 0)
                self._new.append(digest)
            elif self._blocks[page] == block:
                self._dereference(own)
                self._reference(page)
                pages[index] = page
            else:
                return  # a collision: this chain stays private from here on
            request.shared = index + 1

    def release(self, request: Request) -> None:
        """Give the pages back; published ones stay cached until their room is needed."""
        for page in reversed(request.pages):
            self._dereference(page)
        request.pages, request.shared = [], 0

    def snapshot(self) -> tuple[Link, ...]:
        """Every cached block, parents before their children."""
        return tuple((block.digest, self._parent(block)) for block in self._blocks.values())

    def take_events(self) -> tuple[tuple[Link, ...], tuple[int, ...]]:
        """Blocks that became available and digests that were evicted since the last call; the last word of each.

        In the order in which it happened: a parent comes before, and goes after, its children.
        """
        news, self._news = self._news, {}
        cached = tuple((digest, parent) for digest, parent in news.items() if parent is not None)
        return cached, tuple(digest for digest, parent in news.items() if parent is None)

    def _tell(self, digest: int, parent: int | None) -> None:
        self._news.pop(digest, None)
        self._news[digest] = parent

    def _parent(self, block: CachedBlock) -> int:
        return 0 if block.parent is None else self._blocks[block.parent].digest

    def take_new(self) -> list[int]:
        """Digests that became available since the last call; some may be gone again."""
        new, self._new = self._new, []
        return new

    def _match(self, request: Request) -> list[int]:
        """The pages of the longest cached prefix, every content compared."""
        pages: list[int] = []
        page: int | None = None
        for index in range(self._most_blocks(request)):
            page = self._next(request, index, page)
            if page is None:
                break
            pages.append(page)
        return pages

    def _most_blocks(self, request: Request) -> int:
        return min(len(request.digests), (len(request.tokens) - 1) // self.block_tokens)

    def _next(self, request: Request, index: int, parent: int | None) -> int | None:
        """The page that holds block `index` of `request` and follows `parent`."""
        page = self._by_digest.get(request.digests[index])
        if page is None:
            return None
        block = self._blocks[page]
        if block.parent != parent:
            return None
        start = index * self.block_tokens
        return page if block.tokens == tuple(request.tokens[start : start + self.block_tokens]) else None

    def flush(self) -> None:
        """Evict every page that no running request uses. O(pages)."""
        self._free += [self._evict() for _ in range(len(self._idle))]

    def _take(self, count: int) -> list[int]:
        """Pages for a new owner: free ones, then those of the blocks that were used longest ago."""
        kept = max(0, len(self._free) - count)
        pages = self._free[kept:][::-1]
        del self._free[kept:]
        while len(pages) < count:
            pages.append(self._evict())
        for page in pages:
            self._references[page] = 1
        return pages

    def _evict(self) -> int:
        page, _ = self._idle.popitem(last=False)
        digest = self._blocks.pop(page).digest
        del self._by_digest[digest]
        self._tell(digest, None)
        return page

    def _reference(self, page: int) -> None:
        self._idle.pop(page, None)
        self._references[page] += 1

    def _dereference(self, page: int) -> None:
        self._references[page] -= 1
        if self._references[page]:
            return
        if page in self._blocks:
            self._idle[page] = None
        else:
            self._free.append(page)

    def check_invariants(self, running: list[Request]) -> None:
        """Raise AssertionError unless pages are conserved and references equal `running`'s uses."""
        uses = [0] * self.pages
        for request in running:
            for page in request.pages:
                uses[page] += 1
        assert uses == self._references, f"references {self._references} but uses {uses}"
        kept = sorted([*self._free, *self._idle, *(page for page, count in enumerate(uses) if count)])
        assert kept == list(range(self.pages)), f"each of {self.pages} pages is free, idle or referenced, not {kept}"
        both = self._blocks.keys() & self._free
        assert not both, f"pages {both} are free and published"
        assert self._by_digest == {block.digest: page for page, block in self._blocks.items()}
        for page, block in self._blocks.items():
            if block.parent is not None:
                assert block.parent in self._blocks, f"page {page} is published without its parent {block.parent}"
