"""The blocks that an engine reports as cached."""

from collections.abc import Sequence

from serving.blocks import Link, pack_digests, unpack_digests


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

    def used(self, chain: bytes) -> bytes:
        """Return those digests of a request's packed `chain` that are not cached, ends first: none is assumed."""
        return pack_digests([digest for digest in reversed(unpack_digests(chain)) if digest not in self._cached])
