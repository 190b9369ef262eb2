"""vLLM's messages about the blocks of its KV cache: msgpack, with events as maps, or as arrays in older versions."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from serving.kv_events.core.tiers import DEVICE, TIER_OF_MEDIUM

ALL_BATCHES = (-1).to_bytes(8, "big", signed=True)  # the number that ends a replay
Name = int | bytes | str  # of a block
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class _Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[msgspec.Raw]


class _Kind(msgspec.Struct):
    type: str


class _Stored(msgspec.Struct, kw_only=True):
    block_hashes: list[Any]
    parent_block_hash: Any = None
    token_ids: list[TokenId]
    block_size: Any = None
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None


class _Removed(msgspec.Struct):
    block_hashes: list[Any]
    medium: str | None = None
    group_idx: int | None = None


class _KindInArray(msgspec.Struct, array_like=True):
    type: str


class _StoredInArray(msgspec.Struct, array_like=True):
    type: str
    block_hashes: list[Any]
    parent_block_hash: Any
    token_ids: list[TokenId]
    block_size: Any = None
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None


class _RemovedInArray(msgspec.Struct, array_like=True):
    type: str
    block_hashes: list[Any]
    medium: str | None = None


class StoredBlocks(NamedTuple):
    """Consecutive blocks that were cached: the engine's names, tokens of all of them, the cache scope, and the memory.

    Of blocks in a slower memory an engine may tell no tokens.
    """

    names: Sequence[Name]
    parent: Name | None
    tokens: Sequence[int]
    scope: str
    tier: int = DEVICE


class RemovedBlocks(NamedTuple):
    """Blocks of each of which one copy was evicted from a memory."""

    names: Sequence[Name]
    tier: int = DEVICE


class AllRemoved(NamedTuple):
    """The engine has evicted all of its blocks."""


KvEvent = StoredBlocks | RemovedBlocks | AllRemoved


class KvBatch(NamedTuple):
    """The events of one message, and its time on the engine's clock."""

    time: float
    events: list[KvEvent]


def decode_batch(payload: bytes) -> KvBatch:
    """Return the events in `payload` that concern blocks of texts in the engine's own memories.

    Left out are memories elsewhere, other models (LoRA), prompts that are not only text, all but the first group of
    layers, and kinds of events that are unknown. Raises msgspec.DecodeError or RecursionError for what is no message of
    vLLM.
    """
    batch = _batch.decode(payload)
    events = (_event(bytes(raw)) for raw in batch.events)
    return KvBatch(batch.ts, [event for event in events if event is not None])


def _event(raw: bytes) -> KvEvent | None:
    in_array = raw[0] & 0xF0 == 0x90 or raw[0] in (0xDC, 0xDD)  # msgpack's marks of an array
    kind, stored, removed = (
        (_kind_in_array, _stored_in_array, _removed_in_array) if in_array else (_kind, _stored, _removed)
    )
    match kind.decode(raw).type:
        case "BlockStored":
            return _text_blocks(stored.decode(raw))
        case "BlockRemoved":
            gone = removed.decode(raw)
            is_other = gone.medium not in TIER_OF_MEDIUM or (isinstance(gone, _Removed) and gone.group_idx)
            return None if is_other else RemovedBlocks(_names(gone.block_hashes), TIER_OF_MEDIUM[gone.medium])
        case "AllBlocksCleared":
            return AllRemoved()
        case _:
            return None


def _text_blocks(event: _Stored | _StoredInArray) -> StoredBlocks | None:
    if event.medium not in TIER_OF_MEDIUM or event.lora_id is not None or event.lora_name is not None:
        return None
    parent, extra = event.parent_block_hash, None
    if isinstance(event, _Stored):
        if event.group_idx:
            return None
        extra = event.extra_keys
    first, *others = [keys or [] for keys in extra or [[]]]
    # The salt is among the keys of the first block of a prompt. Any other key stands for what is not text.
    salts = first if parent is None else []
    if any(others) or (parent is not None and first) or len(salts) > 1 or not all(isinstance(s, str) for s in salts):
        return None
    if parent is not None:
        _names([parent])
    tier = TIER_OF_MEDIUM[event.medium]
    return StoredBlocks(_names(event.block_hashes), parent, event.token_ids, "".join(salts), tier)


def _names(given: list[Any]) -> list[Name]:
    if not all(isinstance(name, Name) and not isinstance(name, bool) for name in given):
        raise msgspec.ValidationError("the name of a block is a number, bytes or a text")
    return given


_batch = msgspec.msgpack.Decoder(_Batch)
_kind, _kind_in_array = msgspec.msgpack.Decoder(_Kind), msgspec.msgpack.Decoder(_KindInArray)
_stored, _stored_in_array = msgspec.msgpack.Decoder(_Stored), msgspec.msgpack.Decoder(_StoredInArray)
_removed, _removed_in_array = msgspec.msgpack.Decoder(_Removed), msgspec.msgpack.Decoder(_RemovedInArray)
