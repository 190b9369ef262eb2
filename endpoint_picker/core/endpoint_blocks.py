"""The blocks that an endpoint caches: as it reports them, or as far as they follow from what it was sent."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile

from serving.blocks import Link, pack_digests, unpack_digests


class RecentBlocks:
    """The most recently used blocks of one endpoint, at most `most`, as an engine that evicts by LRU keeps them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._order: OrderedDict[int, None] = OrderedDict()  # the least recently used first; within a chain its end

    def __len__(self) -> int:
        return len(self._order)

    def forgotten(self) -> bytes:
        """Forget all blocks; return their packed digests, ends of chains first."""
        digests = pack_digests(list(self._order))
        self._order.clear()
        return digests

    def used(self, chain: bytes) -> bytes:
        """Record a request with the packed `chain`; return the packed digests that no longer fit, ends of chains first.

        O(blocks of the chain). Its beginning counts as used last, because a block without those before it is of no use.
        """
        order = self._order
        for digest in reversed(unpack_digests(chain)):
            order[digest] = None
            order.move_to_end(digest)
        return pack_digests([order.popitem(last=False)[0] for _ in range(len(order) - self._most)])


class ReportedBlocks:
    """The cached blocks of one endpoint, as its events tell."""

    def __init__(self) -> None:
        self._cached: set[int] = set()

    def __len__(self) -> int:
        return len(self._cached)

    def changed(self, stored: Sequence[Link], evicted: Sequence[int]) -> None:
        """Record blocks that were stored, or the digests of those that were evicted."""
        self._cached.update(digest for digest, _ in stored)
        self._cached.difference_update(evicted)

    def matched(self, chain: bytes) -> int:
        """Return the number of blocks at the beginning of a packed `chain` that are cached."""
        return sum(1 for _ in takewhile(self._cached.__contains__, unpack_digests(chain)))

    def used(self, chain: bytes) -> bytes:
        """Return those digests of a request's packed `chain` that are not cached, ends first: none is assumed."""
        return pack_digests([digest for digest in reversed(unpack_digests(chain)) if digest not in self._cached])
