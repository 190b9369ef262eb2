"""vLLM's messages about the blocks of its KV cache: msgpack, with events as maps, or as arrays in older versions."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import msgspec

DEVICE = (None, "GPU")  # the memory that requests compute in; other tiers do not count
ALL_BATCHES = (-1).to_bytes(8, "big", signed=True)  # the number that ends a replay
# The fields of an event that is an array, after its name.
STORED_FIELDS = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")
REMOVED_FIELDS = ("block_hashes", "medium")


class StoredBlocks(NamedTuple):
    """Consecutive blocks that were cached: the engine's names, tokens of all of them, and the cache scope."""

    names: Sequence[Hashable]
    parent: Hashable | None
    tokens: Sequence[int]
    scope: str


class RemovedBlocks(NamedTuple):
    """Blocks of each of which one copy was evicted."""

    names: Sequence[Hashable]


class AllRemoved(NamedTuple):
    """The engine has evicted all of its blocks."""


KvEvent = StoredBlocks | RemovedBlocks | AllRemoved


class KvBatch(NamedTuple):
    """The events of one message, and its time on the engine's clock."""

    time: float
    events: list[KvEvent]


def decode_batch(payload: bytes) -> KvBatch:
    """Return the events in `payload` that concern blocks of texts on the engine's device.

    Left out are other memories, other models (LoRA), prompts that are not only text, and all but the first group of
    layers. Raises msgspec.DecodeError, KeyError, TypeError or ValueError for what is no message of vLLM.
    """
    time, events, *_ = msgspec.msgpack.decode(payload)
    decoded = (_event(event) for event in events)
    return KvBatch(time, [event for event in decoded if event is not None])


def _event(event: Any) -> KvEvent | None:
    kind, fields = (event["type"], event) if isinstance(event, dict) else (event[0], _named(event))
    if fields.get("medium") not in DEVICE or fields.get("group_idx"):
        return None
    match kind:
        case "BlockStored":
            return _stored(fields)
        case "BlockRemoved":
            return RemovedBlocks(fields["block_hashes"])
        case "AllBlocksCleared":
            return AllRemoved()
        case _:
            return None


def _named(event: Sequence[Any]) -> dict[str, Any]:
    names = STORED_FIELDS if event[0] == "BlockStored" else REMOVED_FIELDS
    return dict(zip(names, event[1:], strict=False))


def _stored(fields: dict[str, Any]) -> StoredBlocks | None:
    if fields.get("lora_id") is not None or fields.get("lora_name") is not None:
        return None
    parent = fields.get("parent_block_hash")
    first, *others = [keys or () for keys in fields.get("extra_keys") or [()]]
    # The salt is among the keys of the first block of a prompt. Any other key stands for what is not text.
    salts = first if parent is None else ()
    if any(others) or (parent is not None and first) or len(salts) > 1 or not all(isinstance(s, str) for s in salts):
        return None
    return StoredBlocks(fields["block_hashes"], parent, fields["token_ids"], "".join(salts))
