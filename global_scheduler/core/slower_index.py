"""The blocks that workers hold in slower memories, and what a prefix is worth that is partly there.

For each slower tier an index has the blocks of which a worker holds a copy in that memory or in a faster one. A block
that must be loaded costs a part of what it costs to compute it (`serving.kv_events.core.tiers`): a match of the slower
tier counts as so much shorter.
"""

from collections.abc import Iterator, Sequence

from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.block_tree import Matches
from serving.blocks import BlockRun
from serving.kv_events.core.tiers import LOADING

WHOLE = 1000  # a block that is computed


class SlowerIndex:
    """An index per slower tier in which a worker has reported blocks, each of at most `max_blocks` blocks."""

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._tiers: dict[int, BlockIndex] = {}

    def __bool__(self) -> bool:
        return bool(self._tiers)

    def changed(self, slot: int, tier: int, cached: Sequence[BlockRun], evicted: bytes) -> None:
        """Record what `slot` holds and does not hold any more in `tier` or a faster memory; ignore unknown tiers."""
        if tier not in LOADING:
            return
        index = self._tiers.get(tier)
        if index is None:
            index = self._tiers[tier] = BlockIndex(self._max_blocks)
            self._tiers = dict(sorted(self._tiers.items()))
        index.evicted(slot, evicted)
        if cached:
            index.cached(slot, cached)

    def expect(self, slot: int, chain: bytes) -> None:
        """Expect the blocks of `chain` at `slot`: on the device, and so in each tier or a faster memory."""
        for index in self._tiers.values():
            index.expect(slot, chain)

    def withdraw(self, slot: int, chain: bytes) -> None:
        """Undo one `expect`."""
        for index in self._tiers.values():
            index.withdraw(slot, chain)

    def confirm(self, slot: int, chain: bytes) -> None:
        """Record that an expected request has computed its prompt."""
        for index in self._tiers.values():
            index.confirm(slot, chain)

    def forget(self, slot: int) -> None:
        """Remove a worker, whose slot may then be reused."""
        for index in self._tiers.values():
            index.forget(slot)

    def lengthened(self, matches: Matches, chain: bytes) -> Matches:
        """Return the `matches` of `chain` on devices, each longer by the worth of what slower memories hold beyond."""
        eligible = matches[0][0]
        found = [(workers, blocks, blocks * WHOLE) for workers, blocks in _apart(matches)]
        for tier, index in self._tiers.items():
            slower, worth = list(_apart(index.matches(chain, eligible))), WHOLE - LOADING[tier]
            found = [
                (both, max(blocks, length), value + max(0, length - blocks) * worth)
                for workers, blocks, value in found
                for others, length in slower
                if (both := workers & others)
            ]
        sets: dict[int, int] = {}
        for workers, _, value in found:
            sets[value // WHOLE] = sets.get(value // WHOLE, 0) | workers
        within, nested = 0, []
        for blocks, workers in sorted(sets.items(), reverse=True):
            within |= workers
            nested.append((within, blocks))
        return nested[::-1]

    def check_invariants(self) -> None:
        for index in self._tiers.values():
            index.check_invariants()


def _apart(matches: Matches) -> Iterator[tuple[int, int]]:
    """Yield disjoint sets of workers with their match, the longest first."""
    seen = 0
    for workers, blocks in reversed(matches):
        if workers != seen:
            yield workers ^ seen, blocks
        seen = workers
