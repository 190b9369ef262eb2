"""vLLM's messages about its KV cache, as maps and as arrays."""

from typing import Any

import msgspec
import pytest

from serving.kv_events.messages import AllRemoved, KvEvent, RemovedBlocks, StoredBlocks, decode_batch

STORED = {
    "type": "BlockStored",
    "block_hashes": [7, b"8"],
    "parent_block_hash": None,
    "token_ids": [1, 2, 3, 4],
    "block_size": 2,
    "medium": "GPU",
    "extra_keys": [["salt"], None],
    "group_idx": 0,
    "session_id": "s",
}


def decoded(*events: Any) -> list[KvEvent]:
    batch = decode_batch(msgspec.msgpack.encode([3.5, events, 0]))
    assert batch.time == 3.5
    return batch.events


def test_events_are_maps_or_arrays() -> None:
    removed = {"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU", "group_idx": 0}
    assert decoded(STORED, removed, {"type": "AllBlocksCleared"}) == [
        StoredBlocks([7, b"8"], None, [1, 2, 3, 4], "salt"),
        RemovedBlocks([7]),
        AllRemoved(),
    ]
    arrays = [["BlockStored", [7], 6, [1, 2], 2, None], ["BlockRemoved", [7]], ["AllBlocksCleared"]]
    assert decoded(*arrays) == [StoredBlocks([7], 6, [1, 2], ""), RemovedBlocks([7]), AllRemoved()]
    assert decoded(["BlockStored", [7], None, [1, 2], 2, None, "GPU", None]) == [StoredBlocks([7], None, [1, 2], "")]


@pytest.mark.parametrize(
    "changes",
    [
        {"medium": "CPU"},
        {"group_idx": 1},
        {"lora_name": "adapter"},
        {"lora_id": 1},
        {"extra_keys": [["salt", ["image", 0]], None]},
        {"extra_keys": [["salt", "embeds"], None]},
        {"extra_keys": [["salt"], [["image", 0]]]},
        {"parent_block_hash": 6},  # what is not the first block has no salt: this key is another one
        {"type": "BlockMoved"},
    ],
)
def test_blocks_that_are_not_text_on_the_device_are_left_out(changes: dict[str, Any]) -> None:
    assert decoded({**STORED, **changes}) == []


@pytest.mark.parametrize("payload", [b"", b"\xc1", msgspec.msgpack.encode(3), msgspec.msgpack.encode([1.0, [{}], 0])])
def test_other_messages_raise(payload: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, KeyError, TypeError, ValueError)):
        decode_batch(payload)
