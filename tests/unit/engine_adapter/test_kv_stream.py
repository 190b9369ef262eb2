"""Events of an engine's gRPC as those of its blocks, and what is left out."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine_adapter import kv_stream
from engine_adapter.kv_stream import KvStream, events_of
from engine_adapter.wire.common_pb2 import (
    KV_CACHE_TIER_DEVICE,
    KvBlock,
    KvBlockExtraKey,
    KvBlocksRemoved,
    KvBlocksStored,
    KvCacheCleared,
    KvCacheEvent,
    KvEventBatch,
    KvMultimodalKey,
    SubscribeKvEventsRequest,
)
from serving.kv_events.messages import AllRemoved, KvEvent, RemovedBlocks, StoredBlocks

HOST: Any = 2  # a tier of which the adapter knows no name
LEFT_OUT = {
    "another memory": KvBlocksStored(blocks=[KvBlock(block_hash=1, token_ids=[5])], tier=HOST),
    "another model": KvBlocksStored(blocks=[KvBlock(block_hash=1, token_ids=[5])], lora_name="sql"),
    "another model by number": KvBlocksStored(blocks=[KvBlock(block_hash=1, token_ids=[5], lora_id=0)]),
    "an image": KvBlocksStored(
        blocks=[KvBlock(block_hash=1, token_ids=[5], extra_keys=[KvBlockExtraKey(multimodal=KvMultimodalKey())])]
    ),
    "an embedding": KvBlocksStored(
        blocks=[KvBlock(block_hash=1, token_ids=[5], extra_keys=[KvBlockExtraKey(blob=b"e")])]
    ),
}


def events(**data: Any) -> list[KvEvent]:
    return list(events_of(KvEventBatch(events=[KvCacheEvent(**data)])))


def test_blocks_are_stored_removed_and_cleared() -> None:
    blocks = [KvBlock(block_hash=-1, token_ids=[5, 6]), KvBlock(block_hash=2, token_ids=[7, 8])]
    stored = KvBlocksStored(blocks=blocks, tier=KV_CACHE_TIER_DEVICE)
    assert events(stored=stored) == [StoredBlocks([-1, 2], None, [5, 6, 7, 8], "")]
    stored = KvBlocksStored(blocks=blocks[:1], parent_block_hash=0)  # a hash like any other
    assert events(stored=stored) == [StoredBlocks([-1], 0, [5, 6], "")]
    salted = KvBlock(block_hash=1, token_ids=[5], extra_keys=[KvBlockExtraKey(text="acme")])
    assert events(stored=KvBlocksStored(blocks=[salted], cache_salt="acme")) == [StoredBlocks([1], None, [5], "acme")]
    assert events(removed=KvBlocksRemoved(block_hashes=[-1, 2])) == [RemovedBlocks([-1, 2])]
    assert events(cleared=KvCacheCleared()) == [AllRemoved()]


@pytest.mark.parametrize("name", LEFT_OUT)
def test_blocks_that_no_text_of_the_model_finds_are_left_out(name: str) -> None:
    assert events(stored=LEFT_OUT[name]) == []


def test_other_memories_lose_blocks_of_their_own() -> None:
    assert events(removed=KvBlocksRemoved(block_hashes=[1], tier=HOST)) == []
    assert list(events_of(KvEventBatch())) == []  # repeats the engine's load


async def test_an_event_that_cannot_be_applied_ends_the_stream_and_all_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kv_stream, "RETRY_SECONDS", 0.0)
    batch, heard, again = KvEventBatch(events=[KvCacheEvent(cleared=KvCacheCleared())]), list[str](), asyncio.Event()

    async def subscribe(_: SubscribeKvEventsRequest) -> AsyncIterator[KvEventBatch]:
        yield batch

    def apply(_: list[KvEvent]) -> None:
        heard.append("applied")
        if len(heard) > 2:
            again.set()
        raise AssertionError("a mistake")

    running = asyncio.create_task(KvStream(subscribe, apply, lambda: heard.append("cleared")).run())
    async with asyncio.timeout(60):
        await again.wait()
    assert heard[:3] == ["applied", "cleared", "applied"]
    running.cancel()
