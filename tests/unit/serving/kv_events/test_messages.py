"""vLLM's messages about its KV cache, as maps and as arrays."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endpoint_picker.app import make_picker
from endpoint_picker.config import PickerConfig
from endpoint_picker.core.service_counters import ServiceCounters
from endpoint_picker.followed_caches import FollowedCache
from serving.kv_events.core.tiers import DEVICE, DISK, HOST
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
        {"medium": "EXTERNAL"},
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
def test_blocks_that_are_not_text_in_a_memory_of_the_engine_are_left_out(changes: dict[str, Any]) -> None:
    assert decoded({**STORED, **changes}) == []


@pytest.mark.parametrize(
    ("medium", "tier"), [("GPU", DEVICE), ("CPU", HOST), ("CPU_PINNED", HOST), ("STORAGE", DISK), ("DISK", DISK)]
)
def test_the_memory_of_a_block_is_read(medium: str, tier: int) -> None:
    named = {"type": "BlockStored", "block_hashes": [7], "token_ids": [], "block_size": 0, "medium": medium}
    gone = {"type": "BlockRemoved", "block_hashes": [7], "medium": medium}
    assert decoded(named, gone) == [StoredBlocks([7], None, [], "", tier), RemovedBlocks([7], tier)]


@pytest.mark.parametrize("payload", [b"", b"\xc1", msgspec.msgpack.encode(3), msgspec.msgpack.encode([1.0, [{}], 0])])
def test_other_messages_raise(payload: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        decode_batch(payload)


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3),
    max_leaves=6,
)
NAME = st.integers(0, 9)
FIELDS = {
    "type": st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared"]),
    "block_hashes": st.lists(NAME, max_size=3),
    "parent_block_hash": st.none() | NAME,
    "token_ids": st.lists(st.integers(0, 3), max_size=6),
    "block_size": st.just(2),
    "lora_id": st.none(),
    "medium": st.sampled_from([None, "GPU", "CPU", "STORAGE"]),
    "lora_name": st.none(),
    "extra_keys": st.none() | st.lists(st.none() | st.lists(st.text(max_size=2), max_size=2), max_size=3),
    "group_idx": st.sampled_from([None, 0, 1]),
}
# Each field is what vLLM sends, or anything, or is missing.
FORGED = st.fixed_dictionaries({}, optional={name: right | ANY for name, right in FIELDS.items()})
EVENT = FORGED | FORGED.map(lambda fields: list(fields.values())) | ANY
MESSAGE = st.tuples(st.floats() | ANY, st.lists(EVENT, max_size=4) | ANY, st.just(0) | ANY) | ANY


@given(st.lists(MESSAGE.map(msgspec.msgpack.encode) | st.binary(max_size=20), max_size=6))
@settings(max_examples=300, deadline=None)
def test_whatever_an_engine_sends_is_understood_or_no_message(payloads: list[bytes]) -> None:
    config = PickerConfig(listen="127.0.0.1:0", endpoints="10.0.0.1:8000")
    picker = make_picker(config, ServiceCounters())
    picker.set_endpoints(["10.0.0.1:8000"])
    cache = FollowedCache(picker, "10.0.0.1:8000", 2)
    for payload in payloads:
        try:
            events = decode_batch(payload).events
        except (msgspec.DecodeError, RecursionError):
            continue
        cache.apply(events)
        picker.pool.check_invariants()
    cache.clear()
    picker.pool.check_invariants()
