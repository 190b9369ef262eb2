"""The events of an engine's KV cache, as its gRPC sends them."""

import asyncio
import logging
from collections.abc import AsyncIterable, Callable, Iterator
from typing import Any

import grpc

from engine_adapter.wire import common_pb2
from serving.kv_events.messages import AllRemoved, KvEvent, RemovedBlocks, StoredBlocks

log = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
DEVICE = (common_pb2.KV_CACHE_TIER_UNSPECIFIED, common_pb2.KV_CACHE_TIER_DEVICE)  # what requests compute in


class KvStream:
    """See BlockFollower. The engine's server follows the publisher, and ends the stream where it has missed events.

    Nothing is known of the cache before the stream began, unless the server begins with all blocks.
    """

    def __init__(
        self,
        subscribe: Callable[[common_pb2.SubscribeKvEventsRequest], AsyncIterable[common_pb2.KvEventBatch]],
        apply: Callable[[list[KvEvent]], None],
        clear: Callable[[], None],
    ) -> None:
        self._subscribe = subscribe
        self._apply = apply
        self._clear = clear
        self._reason = ""  # of the latest end of a stream

    def restart(self) -> None:
        """See BlockFollower."""
        self._clear()

    async def run(self) -> None:
        """See BlockFollower."""
        while True:
            reason = await self._follow()
            if reason != self._reason:
                log.info("events of the KV cache do not arrive", extra={"reason": reason})
                self._reason = reason
            self._clear()
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> str:
        """Apply the events of one stream, and return why it ended."""
        try:
            async for batch in self._subscribe(common_pb2.SubscribeKvEventsRequest()):
                self._reason = ""
                if events := list(events_of(batch)):
                    self._apply(events)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        except Exception as error:  # whatever an engine sends, the adapter goes on
            return f"not understood: {error!r}"
        return "the engine has ended the stream"


def events_of(batch: common_pb2.KvEventBatch) -> Iterator[KvEvent]:
    """Yield the events that concern blocks of texts on the engine's device.

    Left out are other memories, other models (LoRA) and prompts that are not only text.
    """
    for event in batch.events:
        match event.WhichOneof("data"):
            case "stored" if event.stored.tier in DEVICE:
                yield from _stored(event.stored)
            case "removed" if event.removed.tier in DEVICE:
                yield RemovedBlocks(list(event.removed.block_hashes))
            case "cleared":
                yield AllRemoved()
            case _:
                pass


def _stored(stored: common_pb2.KvBlocksStored) -> Iterator[StoredBlocks]:
    salt = stored.cache_salt
    if stored.lora_name or any(block.HasField("lora_id") for block in stored.blocks):
        return
    # The salt is among the keys of the first block of a prompt. Any other key stands for what is not text.
    if any(key.text != salt or key.WhichOneof("key") != "text" for block in stored.blocks for key in block.extra_keys):
        return
    names: list[Any] = [block.block_hash for block in stored.blocks]
    parent = stored.parent_block_hash if stored.HasField("parent_block_hash") else None
    yield StoredBlocks(names, parent, [token for block in stored.blocks for token in block.token_ids], salt)
