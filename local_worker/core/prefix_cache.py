"""The prefix cache, a map `digest -> page` over the block chain, and the allocation of the KV cache's pages.

A page is free, referenced by running requests, or idle: published under its digest without a reference. A published
page keeps its token ids and its parent page, and a match compares both. A forged digest therefore never reads the page
of another prefix (design section 3).
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from fairlead.token_ids import TOKEN_BYTES, pack_ids
from local_worker.core.block_cache import BlockChanges
from local_worker.core.fair_pages import NOBODY, FairPages, Leaving
from local_worker.core.page_report import PageReport
from local_worker.core.request import CachedBlock, Request
from serving.blocks import Link, chain, unpack_digests

REPORT_SECONDS = 1.0  # between two reports of who pays for the pages


class BlocksUnderway:
    """Digests of prompt blocks that are not cached yet, each with the running request that computes it.

    A request that waits for one of them need not compute it itself.
    """

    def __init__(self) -> None:
        self._owners: dict[int, Request] = {}

    def __contains__(self, digest: int) -> bool:
        return digest in self._owners

    def owner(self, digest: int) -> Request | None:
        """Return the running request that computes the block; None if there is none."""
        return self._owners.get(digest)

    def admitted(self, request: Request) -> None:
        """Add the blocks of `request` that it did not find cached, but for those that another request computes."""
        for digest in request.digests[request.shared :]:
            self._owners.setdefault(digest, request)

    def cached(self, digests: Iterable[int]) -> None:
        for digest in digests:
            self._owners.pop(digest, None)

    def left(self, request: Request) -> None:
        """Remove the blocks of `request` that it has not computed, and will not make available."""
        for digest in request.digests[request.shared :]:
            if self._owners.get(digest) is request:
                del self._owners[digest]

    def check_invariants(self, running: list[Request]) -> None:
        """Raise AssertionError when a block belongs to a request that does not run."""
        assert {*self._owners.values()} <= {*running}, "a request that does not run computes a block"


class PrefixCache:
    """An allocator of `pages` pages of `block_tokens` tokens each. Unless noted, a method takes O(pages of the
    request).

    With `strict_paper` the least recently used page is evicted first, whoever has used it and whatever waits, as in the
    papers' systems. See BlockCache.
    """

    def __init__(self, pages: int, block_tokens: int, strict_paper: bool = False) -> None:
        self.block_tokens = block_tokens
        self.pages = pages
        self._free = list(range(pages - 1, -1, -1))
        self._references = [0] * pages
        self._blocks: dict[int, CachedBlock] = {}  # of published pages, by page
        self._by_digest: dict[int, CachedBlock] = {}  # the same
        self._fair = FairPages(self._references, self._blocks, self._by_digest, is_fair=not strict_paper)
        self._underway = BlocksUnderway()
        self.changes = BlockChanges()
        self._report = PageReport()
        self._report_due = 0.0
        self.has_new_report = False  # since the last `report`

    @property
    def referenced(self) -> int:
        """The number of pages that running requests use."""
        return self.pages - len(self._free) - self._fair.idle

    @property
    def tokens_used(self) -> int:
        """The capacity, in tokens, of the pages that running requests use."""
        return self.referenced * self.block_tokens

    def match(self, request: Request) -> int:
        """Return the number of `request`'s prompt tokens that are cached now.

        It is never the whole prompt, since the step must compute at least one token to sample the next, and nothing
        while the prompt's log-probabilities are requested, which are computed with its keys and values. The search
        continues from the previous match, so it takes O(blocks cached or evicted since).
        """
        request.matched_blocks = len(self._find(request))
        self._fair.matched(request)
        return request.matched_blocks * self.block_tokens

    def arrived(self, request: Request) -> None:
        """Look up the prefix of `request`, and evict it after everything else until the request is admitted or
        `withdrawn`."""
        self.match(request)
        self._fair.waits(request)

    def withdrawn(self, request: Request) -> None:
        """Spare what `request` matches no longer."""
        self._fair.withdrawn(request)

    def is_underway(self, request: Request) -> bool:
        """Return whether a running request is computing the first block that `request` did not match at the last
        lookup. O(1)."""
        return (
            request.matched_blocks < self._most_blocks(request)
            and request.digests[request.matched_blocks] in self._underway
        )

    def computing(self, request: Request) -> Request | None:
        """Return the running request that computes the first block that `request` did not match at the last lookup;
        None if there is none. O(1)."""
        if request.matched_blocks >= self._most_blocks(request):
            return None
        return self._underway.owner(request.digests[request.matched_blocks])

    def fits(self, request: Request, tokens: int, leaving: Iterable[Request]) -> list[Request] | None:
        """Return the first requests of `leaving` that must release their pages so that `request` gets pages for
        `tokens` tokens; None if all of them do not suffice. O(pages of `request` and of those that leave)."""
        matched = self._match(request)
        fresh = self.pages_for(tokens) - len(matched)
        leaving_now, kept = Leaving(), frozenset(matched)
        needed: list[Request] = []
        others = iter(leaving)
        while fresh > self._room(request, matched, fresh, leaving_now):
            other = next(others, None)
            if other is None:
                return None
            needed.append(other)
            self._fair.leave(leaving_now, other, kept)
        return needed

    def admit(self, request: Request, tokens: int) -> int | None:
        """Give `request` pages for `tokens` tokens; return the number of tokens left to compute, or None if the pages
        do not fit."""
        matched = self._match(request)
        fresh = self.pages_for(tokens) - len(matched)
        if fresh > self._room(request, matched, fresh):
            return None
        self._fair.admitted(request, matched, fresh)
        request.pages = matched + self._take(fresh, request)
        request.shared = len(matched)
        self._underway.admitted(request)
        request.computed = len(matched) * self.block_tokens
        return len(request.tokens) - request.computed

    def extend(self, request: Request, tokens: int) -> bool:
        """Give an admitted `request` the pages that it lacks for `tokens` tokens.

        Return False, and change nothing, if these pages do not fit now.
        """
        fresh = self.pages_for(tokens) - len(request.pages)
        if fresh <= 0:
            return True
        if fresh > len(self._free) + self._fair.idle:
            return False
        self._fair.grew(request, fresh)
        request.pages += self._take(fresh, request)
        return True

    def pages_for(self, tokens: int) -> int:
        """Return the number of pages that `tokens` tokens occupy; the last page may be partly filled."""
        return -(-tokens // self.block_tokens)

    def publish(self, request: Request, tokens: int) -> None:
        """Make the full blocks of `request`'s first `tokens` tokens, which are computed, available to other requests.

        If another request has published an equal block, that page is adopted and the own page is freed. So the parent
        of a published page is referenced for as long as the page is.
        """
        size, start, stop = self.block_tokens, request.shared, tokens // self.block_tokens
        if stop <= start:
            return
        pages, digests, by_digest = request.pages, request.digests, self._by_digest
        new: list[int] = []  # after the first of them nothing can be adopted: it would follow a page of this request
        width, packed = size * TOKEN_BYTES, request.packed
        for index in range(start, stop):
            content = packed[index * width : (index + 1) * width]
            if len(content) < width:
                content = pack_ids(request.tokens[index * size : (index + 1) * size])
            if index == len(digests):
                seed = request.chain_seed if index == request.public_blocks else digests[-1]
                digests += unpack_digests(chain(content, size, seed))
            digest, own, parent = digests[index], pages[index], pages[index - 1] if index else None
            block = by_digest.get(digest)
            if block is None:
                self._blocks[own] = by_digest[digest] = CachedBlock(digest, content, parent, own)
                new.append(own)
            elif block.parent == parent and block.tokens == content:
                self._references[own] = 0
                self._free.append(own)
                self._fair.adopted(request, block.page)
                pages[index] = block.page
            else:
                self._underway.left(request)
                stop = index  # the digests collide: the rest of this chain stays private
                break
        request.shared = stop
        self._underway.cached(digests[start : index + 1])
        if new:
            self._fair.published(request, new)
            first = stop - len(new)
            parents = digests[first - 1 : stop - 1] if first else [0, *digests[: stop - 1]]
            self.changes.cached(zip(digests[first:stop], parents, strict=True))

    def preempted(self, request: Request) -> None:
        self._release(request)
        self._fair.preempted(request)
        request.pages, request.shared = [], 0
        self.arrived(request)

    def finished(self, request: Request) -> None:
        """Release the pages of `request`; published pages stay cached until they are evicted. If it ends its
        interaction, the pages that no other one has used are evicted first."""
        self._release(request)
        self._fair.finished(request)
        request.pages, request.shared = [], 0

    def _release(self, request: Request) -> None:
        """Release the pages of `request` that are not published."""
        self._underway.left(request)
        for page in reversed(request.pages[request.shared :]):
            self._references[page] = 0
            self._free.append(page)

    def snapshot(self) -> tuple[Link, ...]:
        """Return every cached block, parents before their children. O(cached blocks)."""
        return tuple((block.digest, self._parent(block)) for block in self._blocks.values())

    def _parent(self, block: CachedBlock) -> int:
        return 0 if block.parent is None else self._blocks[block.parent].digest

    def _match(self, request: Request) -> list[int]:
        """Return the pages of the longest cached prefix."""
        return [block.page for block in self._find(request)]

    def _find(self, request: Request) -> list[CachedBlock]:
        """Return the blocks of the longest cached prefix, the contents of each of which were compared once: while one
        is cached, so are those before it."""
        found, by_digest = request.found, self._by_digest
        while found and by_digest.get(found[-1].digest) is not found[-1]:
            found.pop()
        most = self._most_blocks(request)
        if len(found) == most:
            return found
        width, digests, parent = self.block_tokens * TOKEN_BYTES, request.digests, found[-1].page if found else None
        if len(request.packed) < most * width:
            request.packed = pack_ids(request.tokens[: most * self.block_tokens])
        packed = request.packed
        for index in range(len(found), most):
            block = by_digest.get(digests[index])
            if block is None or block.parent != parent:
                break
            if block.tokens != packed[index * width : (index + 1) * width]:
                break
            found.append(block)
            parent = block.page
        return found

    def _most_blocks(self, request: Request) -> int:
        if request.scores_prompt:
            return 0
        return min(len(request.digests), (len(request.tokens) - 1) // self.block_tokens)

    def flush(self) -> None:
        """Evict every page that no running request uses. O(pages)."""
        self._free += self._evict(None, self._fair.idle)

    def _take(self, count: int, request: Request) -> list[int]:
        """Return `count` pages for `request`: free pages first, then idle ones."""
        kept = max(0, len(self._free) - count)
        pages = self._free[kept:][::-1]
        del self._free[kept:]
        if len(pages) < count:
            pages += self._evict(request, count - len(pages))
        for page in pages:
            self._references[page] = 1
        return pages

    def _evict(self, request: Request | None, count: int) -> list[int]:
        pages = self._fair.evict(request, count)
        digests: list[int] = []
        for page in pages:
            digest = self._blocks.pop(page).digest
            del self._by_digest[digest]
            digests.append(digest)
        self.changes.evicted(digests)
        return pages

    def advance(self, now: float) -> None:
        """Tell the time in seconds: who had no request for long is not entitled to a part of the pages any more."""
        self._fair.advance(now)
        if now >= self._report_due:
            self._report_due = now + REPORT_SECONDS
            earlier, self._report = self._report, self._fair.report()
            self.has_new_report |= self._report != earlier

    def report(self) -> PageReport:
        self.has_new_report = False
        return self._report

    def _room(self, request: Request, matched: Sequence[int], fresh: int, leaving: Leaving = NOBODY) -> int:
        """Return the number of pages that `request` may take beside those that it `matched`, or at least `fresh`, when
        those `leaving` have left."""
        free = len(self._free) + leaving.free
        if fresh <= free:
            return free
        references, uses = self._references, leaving.uses
        # Whoever needs a page needs those before, so that the first idle one is found by halving.
        idle = len(matched) - bisect_left(matched, True, key=lambda page: references[page] == uses.get(page, 0))
        return free + self._fair.available(request, fresh - free + idle, leaving) - idle

    def check_invariants(self, running: list[Request]) -> None:
        """Raise AssertionError unless each page is free, idle or referenced, and the references equal the uses by
        `running`."""
        uses = [0] * self.pages
        for request in running:
            for page in request.pages:
                uses[page] += 1
        assert uses == self._references, f"references {self._references} but uses {uses}"
        idle = [page for page in self._blocks if not uses[page]]
        places = sorted([*self._free, *idle, *(page for page, count in enumerate(uses) if count)])
        assert places == list(range(self.pages)), f"each page is free, idle or referenced once, not {places}"
        self._fair.check_invariants(running)
        self._underway.check_invariants(running)
        both = self._blocks.keys() & {*self._free}
        assert not both, f"pages {both} are free and published"
        assert self._by_digest == {block.digest: block for block in self._blocks.values()}
        assert all(block.page == page for page, block in self._blocks.items()), "a block has another page"
        for page, block in self._blocks.items():
            if block.parent is not None:
                assert block.parent in self._blocks, f"page {page} is published without its parent {block.parent}"
