"""The KV caches of endpoints as their own events tell. It needs pyzmq, an extra."""

import asyncio
import logging
from collections.abc import Sequence

import zmq.asyncio

from endpoint_picker.picker import Picker
from endpoint_picker.token_prompts import token_root
from serving.kv_events.core.block_rehash import BlockRehash
from serving.kv_events.follower import KvFollower
from serving.kv_events.messages import AllRemoved, KvEvent, RemovedBlocks, StoredBlocks

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0  # between two looks at which endpoints there are


class FollowedCache:
    """The KV cache of one endpoint."""

    def __init__(self, picker: Picker, address: str, block_tokens: int) -> None:
        self.has_reported = False
        self._picker = picker
        self._address = address
        self._block_tokens = block_tokens
        self._blocks = BlockRehash(block_tokens, token_root)
        self._is_strange = False  # its blocks have another size

    def apply(self, events: Sequence[KvEvent]) -> None:
        """Tell the picker what has changed."""
        for event in events:
            match event:
                case StoredBlocks():
                    self._check_size(event)
                    self._changed(stored=self._blocks.stored(*event))
                case RemovedBlocks():
                    self._changed(evicted=self._blocks.removed(*event))
                case AllRemoved():
                    self._changed(evicted=self._blocks.cleared())
        for change in self._blocks.take_slower():
            self._picker.pool.slower_cache_changed(self._address, change)

    def clear(self) -> None:
        """Forget all blocks."""
        self.apply([AllRemoved()])

    def _changed(self, stored: Sequence[tuple[int, int]] = (), evicted: Sequence[int] = ()) -> None:
        self.has_reported = True
        self._picker.cache_changed(self._address, stored, evicted)

    def _check_size(self, event: StoredBlocks) -> None:
        is_strange = len(event.tokens) not in (0, self._block_tokens * len(event.names))
        if is_strange and not self._is_strange:
            self._is_strange = True
            size = len(event.tokens) // max(1, len(event.names))
            log.warning(
                "an engine has blocks of another size, which are not followed",
                extra={"endpoint": self._address, "block_tokens": size, "configured": self._block_tokens},
            )


class FollowedCaches:
    """Follows the events of every endpoint of `picker`.

    The engine at the lowest port of a host publishes at `events_port`, the one at the next port at the next, as ranks
    of data parallelism do; it repeats what was missed at `replay_port` and those after it, if that is above 0.
    """

    def __init__(self, picker: Picker, events_port: int, replay_port: int, block_tokens: int) -> None:
        self._picker = picker
        self._events_port = events_port
        self._replay_port = replay_port
        self._block_tokens = block_tokens

    async def run(self) -> None:
        """Follow until cancelled."""
        following: dict[str, tuple[FollowedCache, asyncio.Task[None]]] = {}
        context = zmq.asyncio.Context()
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    pool = self._picker.pool
                    endpoints = pool.endpoints
                    for address, (cache, task) in list(following.items()):
                        # One that was away in between may be another engine, and is to be followed from its beginning.
                        if address not in endpoints or (cache.has_reported and not pool.reports_blocks(address)):
                            task.cancel()
                            del following[address]
                    for address in endpoints:
                        if address not in following:
                            cache = FollowedCache(self._picker, address, self._block_tokens)
                            follower = self._follower(address, endpoints, cache)
                            following[address] = cache, tasks.create_task(follower.follow(context))
                    await asyncio.sleep(LOOK_SECONDS)
        finally:
            context.destroy(linger=0)

    def _follower(self, address: str, endpoints: Sequence[str], cache: FollowedCache) -> KvFollower:
        host, _, port = address.rpartition(":")
        ports = sorted(int(each.rpartition(":")[2]) for each in endpoints if each.rpartition(":")[0] == host)
        rank = ports.index(int(port))
        replay = f"tcp://{host}:{self._replay_port + rank}" if self._replay_port else ""
        return KvFollower(f"tcp://{host}:{self._events_port + rank}", replay, cache.apply, cache.clear)
