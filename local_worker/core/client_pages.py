"""The pages that one client has used, in the order in which it gives them up: least recently used first, but pages that
its waiting requests match go last.

A waiting request is known to need its prefix, unlike the next user of any other page.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from local_worker.core.request import CachedBlock, Request

NO_BLOCK = 0  # in place of the digest of a last block, for requests that match nothing


class ClientPages:
    """The published pages of one client. It gives up no page before those that follow it: their content cannot be found
    without it. Nor does it give up a page that its own running requests use.

    `blocks` holds the blocks of all published pages, `by_digest` the same by their digests.
    """

    __slots__ = ("_awaited", "_blocks", "_by_digest", "_ends", "_followers", "_spared", "_unused", "_uses")

    def __init__(self, blocks: Mapping[int, CachedBlock], by_digest: Mapping[int, CachedBlock]) -> None:
        self._blocks = blocks
        self._by_digest = by_digest
        self._uses: dict[int, int] = {}  # page -> number of the client's running requests that use it
        self._followers: dict[int, int] = {}  # page -> number of the client's pages that follow it
        self._unused: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._spared: OrderedDict[int, None] = OrderedDict()  # needed when their turn came; the first goes first
        self._ends: dict[Request, int] = {}  # waiting request -> digest of the last block that it matches
        self._awaited: dict[int, int] = {}  # digest -> number of waiting requests whose match ends there

    def __len__(self) -> int:
        return len(self._uses) + len(self._unused) + len(self._spared)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the pages in no particular order."""
        return chain(self._uses, self._unused, self._spared)

    def __contains__(self, page: int) -> bool:
        return page in self._uses or page in self._unused or page in self._spared

    def gives_unneeded(self) -> bool:
        """Return whether the client can give up a page that none of its waiting requests needs."""
        while self._unused:
            page = next(iter(self._unused))
            if page not in self._followers and self._blocks[page].digest not in self._awaited:
                return True
            del self._unused[page]
            self._spared[page] = None
        return False

    @property
    def gives_any(self) -> bool:
        """Whether the client can give up a page, if need be one that its waiting requests need. The last one that
        follows a page here is here too."""
        return bool(self._unused or self._spared)

    def use(self, pages: Iterable[int]) -> None:
        """Record that a running request of the client uses `pages`, which may be new to the client."""
        uses, unused, spared, followers = self._uses, self._unused, self._spared, self._followers
        for page in pages:
            if page in uses:
                uses[page] += 1
                continue
            uses[page] = 1
            if page in unused:
                del unused[page]
            elif page in spared:
                del spared[page]
            elif (parent := self._blocks[page].parent) is not None:
                followers[parent] = followers.get(parent, 0) + 1

    def release(self, pages: Iterable[int]) -> None:
        """Record that a running request of the client uses `pages` no longer; those that follow others come first."""
        uses, unused = self._uses, self._unused
        for page in pages:
            count = uses[page] - 1
            if count:
                uses[page] = count
            else:
                del uses[page]
                unused[page] = None

    def pop_unneeded(self, most: int) -> list[int]:
        """Remove and return the next pages to give up, at most `most`, as far as no waiting request needs them."""
        return self._pop(self._unused, self._awaited, most)

    def pop(self, most: int) -> list[int]:
        """Remove and return the next pages to give up, at most `most`, in the end those that waiting requests need."""
        found = self.pop_unneeded(most)
        return found + self._pop(self._spared, {}, most - len(found)) if len(found) < most else found

    def _pop(self, pages: OrderedDict[int, None], awaited: Mapping[int, int], most: int) -> list[int]:
        """Remove and return the first of `pages`, at most `most`, that no other follows and that are not `awaited`."""
        blocks, followers, found = self._blocks, self._followers, list[int]()
        while pages and len(found) < most:
            page, _ = pages.popitem(last=False)
            block = blocks[page]
            if page in followers or block.digest in awaited:
                self._spared[page] = None
                continue
            found.append(page)
            if block.parent is not None:
                self._loses_follower(block.parent)
        return found

    def drop(self, page: int) -> None:
        """Remove a page that no running request of the client uses."""
        del (self._unused if page in self._unused else self._spared)[page]
        if (parent := self._blocks[page].parent) is not None:
            self._loses_follower(parent)

    def _loses_follower(self, page: int) -> None:
        count = self._followers.pop(page)
        if count > 1:
            self._followers[page] = count - 1

    def is_waiting(self, request: Request) -> bool:
        """Return whether the pages that `request` matches are spared."""
        return request in self._ends

    def spare(self, request: Request) -> bool:
        """Spare the pages that `request`, which waits, matches now, and none that it matched before; return whether
        these are others."""
        digest = request.digests[request.matched_blocks - 1] if request.matched_blocks else NO_BLOCK
        if self._ends.get(request) == digest:
            return False
        self.left(request)
        self._ends[request] = digest
        self._awaited[digest] = self._awaited.get(digest, 0) + 1
        return True

    def left(self, request: Request) -> None:
        """Spare no page for `request`, which waits no longer."""
        digest = self._ends.pop(request, None)
        if digest is None:
            return
        others = self._awaited.pop(digest) - 1
        if others:
            self._awaited[digest] = others
        else:
            self._spare_no_longer(digest)

    def _spare_no_longer(self, digest: int) -> None:
        """Make the page of `digest`, and the pages before it that were spared for it alone, the next to be given up."""
        spared_for_it: list[int] = []
        block = self._by_digest.get(digest)
        page = None if block is None else block.page
        while page is not None and page in self._spared and self._followers.get(page, 0) == min(len(spared_for_it), 1):
            if self._blocks[page].digest in self._awaited:
                break
            spared_for_it.append(page)
            page = self._blocks[page].parent
        for each in reversed(spared_for_it):
            del self._spared[each]
            self._unused[each] = None
            self._unused.move_to_end(each, last=False)

    def check_invariants(self) -> None:
        """Raise AssertionError when a page is in two places, has no parent here, or a count is wrong."""
        pages = {*self}
        assert len(pages) == len(self), "a page is used, unused or spared twice"
        followers = Counter(self._blocks[page].parent for page in pages)
        del followers[None]
        assert self._followers == followers, f"followers {self._followers}, not {followers}"
        assert followers.keys() <= pages, "a client has a page without the page before"
        awaited = {**Counter(self._ends.values())}
        assert self._awaited == awaited, f"awaited {self._awaited}, ends {self._ends}"


Name = tuple[str, str]  # client, id


@dataclass(slots=True, eq=False)
class _Interaction:
    name: Name
    pages: dict[int, None] = field(default_factory=dict)  # in the order in which they were published


class InteractionPages:
    """The published pages of each interaction that no request outside it has used: nobody needs them after its end.

    With a page, all pages that follow it are the interaction's, since whoever uses these uses it too.
    """

    def __init__(self, pages: int) -> None:
        self._interactions: dict[Name, _Interaction] = {}
        self._users: list[_Interaction | None] = [None] * pages  # by page: the interaction that alone has used it

    def published(self, request: Request, pages: Sequence[int]) -> None:
        """Record that `request` has filled `pages`."""
        if request.interaction:
            name = request.client, request.interaction
            user = self._interactions.get(name)
            if user is None:
                user = self._interactions[name] = _Interaction(name)
            for page in pages:
                user.pages[page] = None
                self._users[page] = user

    def used(self, request: Request, pages: Sequence[int]) -> None:
        """Record that `request` uses `pages`, a chain or the next page of one. O(pages that nobody else had used)."""
        users = self._users
        for page in reversed(pages):
            user = users[page]
            if user is None or user.name == (request.client, request.interaction):
                break  # so it is with those before
            self.evicted((page,))

    def evicted(self, pages: Iterable[int]) -> None:
        """Forget those of `pages` that are an interaction's."""
        users = self._users
        for page in pages:
            if (user := users[page]) is not None:
                users[page] = None
                del user.pages[page]
                if not user.pages:
                    del self._interactions[user.name]

    def ended(self, request: Request) -> Iterable[int]:
        """Forget and return the pages of the interaction of `request`, each before those that it follows."""
        ended = self._interactions.pop((request.client, request.interaction), None)
        if ended is None:
            return ()
        for page in ended.pages:
            self._users[page] = None
        return reversed(ended.pages)

    def check_invariants(self) -> None:
        """Raise AssertionError unless each page is of one interaction that is remembered."""
        expected = {page: user for user in self._interactions.values() for page in user.pages}
        users = {page: user for page, user in enumerate(self._users) if user is not None}
        assert users == expected, f"{users}, not {expected}"
        assert all(user.pages for user in self._interactions.values()), "an interaction without pages is remembered"
