"""An engine's names of its cached blocks, and our digests of the same blocks.

An engine names a block by a hash of its own and publishes the block's tokens with it. The digests of the block chain
(serving.blocks) follow from the tokens and the parent, so the engine's hash function need not be known. An engine may
hold several copies of one block, and reports each one.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from fairlead.token_ids import pack_ids
from serving.blocks import Link, chain, unpack_digests

MOST_BLOCKS = 1024 * 1024  # of one engine; 16 million tokens in blocks of 16


@dataclass(slots=True)
class NamedBlock:
    """One block of the engine: our digest, and the number of copies that the engine holds."""

    digest: int
    copies: int


class BlockRehash:
    """The engine's cached blocks by the engine's names; `root(scope)` is the seed of the first block of a chain."""

    def __init__(self, block_tokens: int, root: Callable[[str], int]) -> None:
        self._block_tokens = block_tokens
        self._root = root
        self._blocks: dict[Hashable, NamedBlock] = {}

    def stored(
        self, names: Sequence[Hashable], parent: Hashable | None, tokens: Sequence[int], scope: str
    ) -> list[Link]:
        """Record consecutive blocks and return those that are new, parents first.

        `scope` counts for a block without a parent. Blocks that do not have the expected size, or whose parent is not
        known, are not recorded: what was computed before this adapter listened cannot be named. Neither are blocks
        beyond MOST_BLOCKS.
        """
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
                self._blocks[name] = NamedBlock(digest, 1)
                new.append((digest, before))
            else:
                block.copies += 1
            before = digest
        return new

    def removed(self, names: Sequence[Hashable]) -> list[int]:
        """Record that one copy of each block was evicted; return the digests of those of which none is left."""
        gone = []
        for name in names:
            block = self._blocks.get(name)
            if block is None:
                continue
            block.copies -= 1
            if not block.copies:
                del self._blocks[name]
                gone.append(block.digest)
        return gone

    def cleared(self) -> list[int]:
        """Forget all blocks; return their digests, children before their parents."""
        gone = [block.digest for block in reversed(self._blocks.values())]
        self._blocks.clear()
        return gone
