"""The pages of the KV caches of all workers together: who pays for them, and for whom they were evicted."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from fairlead.v1 import scheduler_pb2


class PageSum(NamedTuple):
    """The number of pages that a tenant or a client pays for, and its part of the pages, at all workers together."""

    pages: float = 0.0
    part: float = 0.0

    def __str__(self) -> str:
        """Return both numbers as tables show them."""
        return f"{self.pages:,.0f}/{self.part:,.0f}"


NOTHING = PageSum()


def of_tenants(members: Iterable[scheduler_pb2.Member]) -> dict[str, PageSum]:
    """Return the sums of tenants by name; the empty name is that of all that workers do not name."""
    return _summed(share for member in members for share in member.load.tenant_pages)


def of_clients(members: Iterable[scheduler_pb2.Member]) -> dict[str, PageSum]:
    """Return the sums of clients as `of_tenants` does those of tenants."""
    return _summed(share for member in members for share in member.load.client_pages)


def _summed(shares: Iterable[scheduler_pb2.PageShare]) -> dict[str, PageSum]:
    sums: dict[str, PageSum] = {}
    for share in shares:
        before = sums.get(share.name, NOTHING)
        sums[share.name] = PageSum(before.pages + share.pages, before.part + share.part)
    return sums


def evictions(members: Iterable[scheduler_pb2.Member]) -> list[tuple[tuple[str, str], int]]:
    """Return the number of evicted pages by the tenant that needed them and the one that gave them up, most first."""
    pages = Counter[tuple[str, str]]()
    for member in members:
        for evicted in member.load.evicted_pages:
            pages[evicted.taker, evicted.owner] += evicted.pages
    return pages.most_common()
