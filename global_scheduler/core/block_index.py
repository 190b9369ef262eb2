"""Which workers are believed to hold which prefixes: routing hints, never trusted for correctness."""

from collections.abc import Sequence


class BlockIndex:
    """Block digest -> bitmask of worker slots; one walk along a chain answers for all workers (DLPM Alg. 2, `R`).

    At most `max_blocks` digests are kept. When full, the chain inserted longest ago goes first, its deepest block
    before its root, so that what remains of a chain can still be matched.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._holders: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def match(self, digests: Sequence[int], eligible: int) -> tuple[int, int]:
        """The eligible workers with the longest match, and its blocks; all of them with 0 when nobody holds any."""
        for matched, digest in enumerate(digests):
            holders = eligible & self._holders.get(digest, 0)
            if not holders:
                return eligible, matched
            eligible = holders
        return eligible, len(digests)

    def insert(self, slot: int, digests: Sequence[int]) -> list[int]:
        """`slot` holds `digests` (or will soon); returns those that it was not known to hold, if they were kept."""
        bit = 1 << slot
        new: list[int] = []
        for digest in reversed(digests):
            holders = self._holders.pop(digest, 0)
            self._holders[digest] = holders | bit
            if not holders & bit:
                new.append(digest)
        while len(self._holders) > self._max_blocks:
            del self._holders[next(iter(self._holders))]
        return [digest for digest in new if digest in self._holders]

    def evict(self, slot: int, digests: Sequence[int]) -> None:
        """`slot` no longer holds `digests` (Alg. 2 line 27); unknown ones are ignored."""
        for digest in digests:
            holders = self._holders.get(digest, 0) & ~(1 << slot)
            if holders:
                self._holders[digest] = holders
            else:
                self._holders.pop(digest, None)

    def forget(self, slot: int) -> None:
        """The worker is gone; its slot may be given to another."""
        self.evict(slot, list(self._holders))

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert len(self._holders) <= self._max_blocks, f"{len(self._holders)} blocks, at most {self._max_blocks}"
        for digest, holders in self._holders.items():
            assert holders > 0, f"block {digest:x} is held by nobody"
