"""What operators see of the KV cache: who pays for its pages, and for whom pages were evicted."""

from collections import Counter
from collections.abc import Iterable
from heapq import nlargest
from operator import itemgetter
from typing import NamedTuple

from local_worker.core.page_account import PAGE, PageAccount

MOST_NAMED = 32  # tenants, and clients, of one report: those that pay for most
MOST_PAIRS = 64  # pairs of tenants whose evictions are counted apart: the first ones
OTHERS = ""  # the name of all that are not named


class PageShare(NamedTuple):
    """The number of `pages` that a tenant or a client pays for, and its part: that to which it is entitled."""

    name: str
    pages: float
    part: float


class EvictedPages(NamedTuple):
    """The number of pages that the tenant `owner` gave up because a request of the tenant `taker` needed them."""

    taker: str
    owner: str
    pages: int


class PageReport(NamedTuple):
    """The shares of tenants and of clients, each of which sum up to all pages in use, and all evictions so far."""

    tenants: tuple[PageShare, ...] = ()
    clients: tuple[PageShare, ...] = ()
    evicted: tuple[EvictedPages, ...] = ()


def shares_of(accounts: Iterable[tuple[str, PageAccount]], pages: int) -> tuple[PageShare, ...]:
    """Return the shares of a cache of `pages` pages that `accounts` of equal names have together, the largest first,
    and then one of all others. O(accounts)."""
    held, parts = Counter[str](), Counter[str]()
    accounts = list(accounts)
    for name, account in accounts:
        held[name] += account.held
    named = dict(nlargest(MOST_NAMED, held.items(), key=itemgetter(1)))
    for name, account in accounts:
        if account.is_here and name in named:
            parts[name] += account.part_of_all(pages)
    shares = [PageShare(each, units / PAGE, parts[each] / PAGE) for each, units in named.items()]
    if len(held) > len(named):
        others = (pages - parts.total() / PAGE) if any(account.is_here for _, account in accounts) else 0.0
        shares.append(PageShare(OTHERS, (held.total() - sum(named.values())) / PAGE, max(0.0, others)))
    return tuple(shares)


class EvictionCounts:
    """The evictions by whose request needed the pages, and whose they were."""

    def __init__(self) -> None:
        self._pages = Counter[tuple[str, str]]()

    def count(self, taker: str, owner: str, pages: int) -> None:
        """Count `pages` that the tenant `owner` gave up for a request of the tenant `taker`."""
        pair = taker, owner
        self._pages[pair if pair in self._pages or len(self._pages) < MOST_PAIRS else (OTHERS, OTHERS)] += pages

    def all(self) -> tuple[EvictedPages, ...]:
        """Return the evictions of each pair, in the order in which these came."""
        return tuple(EvictedPages(taker, owner, pages) for (taker, owner), pages in self._pages.items())
