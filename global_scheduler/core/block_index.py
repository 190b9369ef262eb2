"""The prefixes that each worker probably caches: routing hints, on which correctness never depends.

A worker *holds* a block from its report `cached` until its report `evicted`. Before that, from dispatch on, the block
is *expected*. Expectations are counted per request, so cancelling one request never drops those of another.
"""

from collections.abc import Iterator, Sequence

from global_scheduler.core.block_tree import BlockTree, Matches, Node
from serving.blocks import DIGEST_BYTES, BlockRun, pack_digests, reversed_digests, unpack_digests
from serving.kv_events.core.tiers import LOADING

# Nodes with blocks of outstanding requests are spared when the index is full; at most this many are passed over.
MAX_SPARED = 64
MAX_BLOCKS = 2_000_000  # of 8 to 140 bytes each


class BlockIndex:
    """An index of at most `max_blocks` blocks.

    When the index is full, the least recently used run loses blocks from its end; blocks of outstanding requests are
    spared. If all candidates are spared, the new request is not indexed: it still runs, but gives no hint to others.
    """

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self.max_blocks = max_blocks
        self._tree = BlockTree()

    def __len__(self) -> int:
        return self._tree.blocks

    def matches(self, chain: bytes, eligible: int) -> Matches:
        return self._tree.matches(chain, eligible)

    def expect(self, slot: int, chain: bytes) -> bool:
        """Expect the blocks of `chain` at `slot` (line 18); return False and change nothing if there is no room."""
        path = self._tree.reach(None, chain)
        for node in path:
            node.expect(slot)
        if path:
            self._tree.touch(path[-1])
        if self._shrink():
            return True
        self.withdraw(slot, chain)
        return False

    def withdraw(self, slot: int, chain: bytes) -> None:
        """Undo one `expect`: the request will not compute its whole prompt at `slot`."""
        path = list(self._tree.along(chain))
        for node in path:
            node.withdraw(slot)
        if path and not path[-1].mask and not path[-1].children:
            self._tree.remove(path[-1])
        self._tree.join_upwards(next((node for node in reversed(path) if node in self._tree), None))

    def confirm(self, slot: int, chain: bytes) -> None:
        """Record that an expected request has computed its prompt: `slot` holds its whole chain."""
        path = list(self._tree.along(chain))
        for node in path:
            node.withdraw(slot)
            node.hold(slot)
        self._tree.join_upwards(path[-1] if path else None)

    def cached(self, slot: int, runs: Sequence[BlockRun]) -> None:
        """Record the `runs` that `slot` reports as cached, parents first: changes, or a snapshot after `forget`.

        A run whose parent lies inside a node is left out: two requests generated the same blocks and diverged later, or
        the parent was dropped. The next prompt that contains the run adds it again.
        """
        ends: list[Node] = []
        pieces = list(_cut(runs))
        # A node that several runs follow must keep its end.
        forks = len({run.parent for run in pieces}) < len(pieces)
        for run in pieces:
            parent = self._tree.ending_with(run.parent.to_bytes(DIGEST_BYTES, "little")) if run.parent else None
            if run.parent and parent is None:
                continue
            if not forks and parent is not None and self._append(parent, slot, run.digests):
                continue
            path = self._tree.reach(parent, run.digests)
            for node in path:
                node.hold(slot)
            self._tree.touch(path[-1] if path else None)
            ends += path[-1:]
        for node in ends:
            if node in self._tree:
                self._tree.join_upwards(node)
        if not self._shrink():
            for run in reversed(runs):
                self.evicted(slot, reversed_digests(run.digests))

    def evicted(self, slot: int, digests: bytes) -> None:
        """Record that `slot` evicted `digests`, ends of chains first (line 27); unknown digests are ignored."""
        bit = 1 << slot
        chains = reversed_digests(digests)
        end = len(chains)  # of what remains to be evicted
        while end:
            node = self._tree.ending_with(chains[end - DIGEST_BYTES : end])
            if node is None or not node.held & bit:
                end -= DIGEST_BYTES
                continue
            size = _common_end(node.digests, chains, end)
            end -= size
            if node.mask == bit and not node.expected and not node.children:
                self._tree.trim(node, size)
                continue
            if size < len(node.digests):
                self._tree.split(node, len(node.digests) - size)
            node.release(slot)
            self._tree.join(node)

    def forget(self, slot: int) -> None:
        """Remove a worker, whose slot may then be reused. O(nodes); workers leave rarely."""
        for node in self._tree.nodes:
            if node.mask >> slot & 1:
                node.forget(slot)
                if not node.mask and not node.children:
                    self._tree.remove(node)

    def _append(self, leaf: Node, slot: int, digests: bytes) -> bool:
        """Extend `leaf` in place, as adding a node and joining both would: the usual case of a growing answer."""
        if leaf.children or leaf.expected is not None or leaf.held != 1 << slot:
            return False
        return self._tree.append(leaf, digests)

    def _shrink(self) -> bool:
        """Drop blocks until the index fits; return False if outstanding requests need all that could be dropped."""
        spared = 0
        while self._tree.blocks > self.max_blocks:
            oldest = self._tree.oldest
            if oldest.expected is None:
                excess = (self._tree.blocks - self.max_blocks) * DIGEST_BYTES
                self._tree.trim(oldest, min(excess, len(oldest.digests)))
            elif spared == MAX_SPARED:
                return False
            else:
                spared += 1
                self._tree.touch(oldest)
        return True

    def check_invariants(self) -> None:
        """Raise AssertionError unless the tree is sound and fits."""
        self._tree.check_invariants()
        assert len(self) <= self.max_blocks, f"{len(self)} blocks, at most {self.max_blocks} fit"


def _cut(runs: Sequence[BlockRun]) -> Iterator[BlockRun]:
    """Yield the same blocks in runs that end wherever another run begins."""
    parents = {run.parent for run in runs}
    for run in runs:
        if len(run.digests) == DIGEST_BYTES:
            yield run
            continue
        digests, start, parent = unpack_digests(run.digests), 0, run.parent
        if parents.isdisjoint(digests[:-1]):
            yield run
            continue
        for stop, digest in enumerate(digests, start=1):
            if digest in parents or stop == len(digests):
                yield BlockRun(parent, pack_digests(digests[start:stop]))
                start, parent = stop, digest


def _common_end(digests: bytes, chains: bytes, end: int) -> int:
    """Return with how many bytes, in whole digests, both `digests` and `chains` before `end` end.

    A binary search, because a step in Python for each block costs more than a comparison of all of them. It begins with
    all, which is usual. The time does not depend on the length of `digests`.
    """
    same, most = 0, min(len(digests), end) // DIGEST_BYTES
    size = most
    while same < most:
        if digests.endswith(chains[end - size * DIGEST_BYTES : end]):
            same = size
        else:
            most = size - 1
        size = (same + most + 1) // 2
    return same * DIGEST_BYTES


WHOLE = 1000  # a block that is computed


class SlowerIndex:
    """The blocks that workers hold in slower memories: an index per tier, each of at most `max_blocks` blocks.

    A tier's index has the blocks of which a worker holds a copy in that memory or in a faster one. A block that must be
    loaded costs a part of what it costs to compute it (`serving.kv_events.core.tiers`): a match of the slower tier
    counts as so much shorter.
    """

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
        """Raise AssertionError with detail when the state is impossible."""
        for index in self._tiers.values():
            index.check_invariants()


def _apart(matches: Matches) -> Iterator[tuple[int, int]]:
    """Yield disjoint sets of workers with their match, the longest first."""
    seen = 0
    for workers, blocks in reversed(matches):
        if workers != seen:
            yield workers ^ seen, blocks
        seen = workers
