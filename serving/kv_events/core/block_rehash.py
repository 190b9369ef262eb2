"""An engine's names of its cached blocks, and our digests of the same blocks.

An engine names a block by a hash of its own and publishes the block's tokens with it. The digests of the block chain
(serving.blocks) follow from the tokens and the parent, so the engine's hash function need not be known. An engine may
hold several copies of one block, in several memories, and reports each one. Of a copy in a slower memory it may tell
the name alone.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.token_ids import pack_ids
from serving.blocks import Link, chain, unpack_digests
from serving.kv_events.core.tiers import DEVICE, TIERS

MOST_BLOCKS = 1024 * 1024  # of one engine; 16 million tokens in blocks of 16


class TierChange(NamedTuple):
    """Blocks of which a copy is in `tier` or a faster memory since the last change, or is not any more.

    Parents are cached before their children, and evicted after them.
    """

    tier: int
    cached: Sequence[Link]
    evicted: Sequence[int]


@dataclass(slots=True)
class NamedBlock:
    """One block of the engine: our digest, that of its parent, and the number of copies in each tier."""

    digest: int
    parent: int
    copies: list[int] = field(default_factory=lambda: [0] * len(TIERS))

    def is_in(self, tier: int) -> bool:
        """Return whether a copy is in `tier` or a faster memory."""
        return any(self.copies[: tier + 1])


class BlockRehash:
    """The engine's cached blocks by the engine's names; `root(scope)` is the seed of the first block of a chain."""

    def __init__(self, block_tokens: int, root: Callable[[str], int]) -> None:
        self._block_tokens = block_tokens
        self._root = root
        self._blocks: dict[Hashable, NamedBlock] = {}
        # By slower tier in which blocks were stored: changes since `take_slower`, digest -> parent; None: evicted.
        self._slower: dict[int, dict[int, int | None]] = {}

    def stored(
        self,
        names: Sequence[Hashable],
        parent: Hashable | None,
        tokens: Sequence[int],
        scope: str,
        tier: int = DEVICE,
    ) -> list[Link]:
        """Record consecutive blocks and return those that are new on the device, parents first.

        `scope` counts for a block without a parent. Blocks that do not have the expected size, or whose parent is not
        known, are not recorded: what was computed before this adapter listened cannot be named. Neither are blocks
        beyond MOST_BLOCKS. Without `tokens` another copy is recorded of blocks that are known.
        """
        self._look_at(tier)
        if tier != DEVICE and not tokens:
            known = [block for name in names if (block := self._blocks.get(name)) is not None]
            return [link for block in known if (link := self._added(block, tier)) is not None]
        size = self._block_tokens
        if len(tokens) != size * len(names) or (parent is not None and parent not in self._blocks):
            return []
        if len(self._blocks) + len(names) > MOST_BLOCKS:
            return []
        before = 0 if parent is None else self._blocks[parent].digest
        seed = self._root(scope) if parent is None else before
        new = []
        for name, digest in zip(names, unpack_digests(chain(pack_ids(tokens), size, seed)), strict=True):
            block = self._blocks.get(name)
            if block is None:
                block = self._blocks[name] = NamedBlock(digest, before)
            if (link := self._added(block, tier)) is not None:
                new.append(link)
            before = digest
        return new

    def removed(self, names: Sequence[Hashable], tier: int = DEVICE) -> list[int]:
        """Record that one copy of each block was evicted; return the digests of those of which the device has none
        left."""
        gone = []
        for name in names:
            block = self._blocks.get(name)
            if block is None or not block.copies[tier]:
                continue
            block.copies[tier] -= 1
            if tier == DEVICE and not block.copies[DEVICE]:
                gone.append(block.digest)
            for slower in self._slower:
                if slower >= tier and not block.is_in(slower):
                    self._changed(slower, block.digest, None)
            if not any(block.copies):
                del self._blocks[name]
        return gone

    def cleared(self) -> list[int]:
        """Forget all blocks; return the digests of those on the device, children before their parents."""
        blocks = list(reversed(self._blocks.values()))
        for slower in self._slower:
            for block in blocks:
                if block.is_in(slower):
                    self._changed(slower, block.digest, None)
        self._blocks.clear()
        return [block.digest for block in blocks if block.copies[DEVICE]]

    def take_slower(self) -> list[TierChange]:
        """Return what has changed in slower memories since the last call; nothing while no block was stored there."""
        taken = []
        for tier, changes in self._slower.items():
            if changes:
                cached = [(digest, parent) for digest, parent in changes.items() if parent is not None]
                evicted = [digest for digest, parent in changes.items() if parent is None]
                taken.append(TierChange(tier, cached, evicted))
                self._slower[tier] = {}
        return taken

    def _look_at(self, tier: int) -> None:
        """Tell of blocks in `tier` or a faster memory from now on."""
        if tier == DEVICE or tier in self._slower:
            return
        self._slower[tier] = {block.digest: block.parent for block in self._blocks.values() if block.is_in(tier)}

    def _added(self, block: NamedBlock, tier: int) -> Link | None:
        """Record a copy; return the block if it is new on the device."""
        for slower in self._slower:
            if slower >= tier and not block.is_in(slower):
                self._changed(slower, block.digest, block.parent)
        block.copies[tier] += 1
        return (block.digest, block.parent) if tier == DEVICE and block.copies[DEVICE] == 1 else None

    def _changed(self, tier: int, digest: int, parent: int | None) -> None:
        changes = self._slower[tier]
        changes.pop(digest, None)
        changes[digest] = parent
