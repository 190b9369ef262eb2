"""What the slower memories of an engine hold, as schedulers are told."""

from collections.abc import Iterable

from fairlead.v1 import scheduler_pb2
from local_worker.wire import to_block_runs
from serving.blocks import pack_digests
from serving.kv_events.core.block_rehash import TierChange


class SlowerBlocks:
    """The latest change of each block by tier: its parent, or None when it was evicted."""

    def __init__(self) -> None:
        self._tiers: dict[int, dict[int, int | None]] = {}

    def __bool__(self) -> bool:
        return any(self._tiers.values())

    def changed(self, changes: Iterable[TierChange], *, keeps_evicted: bool) -> None:
        """Apply changes in their order; a snapshot keeps no block that was evicted."""
        for change in changes:
            blocks = self._tiers.setdefault(change.tier, {})
            for digest in change.evicted:  # removed before it is inserted: the order is that of the latest changes
                blocks.pop(digest, None)
                if keeps_evicted:
                    blocks[digest] = None
            for digest, parent in change.cached:
                blocks.pop(digest, None)
                blocks[digest] = parent

    def messages(self) -> list[scheduler_pb2.SlowerBlocks]:
        """Return a message for each tier of which there is something to tell."""
        return [
            scheduler_pb2.SlowerBlocks(
                tier=tier,
                cached=to_block_runs((digest, parent) for digest, parent in blocks.items() if parent is not None),
                evicted=pack_digests([digest for digest, parent in blocks.items() if parent is None]),
            )
            for tier, blocks in self._tiers.items()
            if blocks
        ]
