"""How FlashInfer 0.6's `PrefillPlan` divides a batch, and the memory that it takes for the parts, step by step."""

from collections.abc import Sequence
from dataclasses import dataclass

SHORTEST_CHUNK = 128  # tokens


@dataclass(frozen=True)
class Device:
    processors: int


@dataclass(frozen=True)
class Attention:
    """A kind of layer, and the graph that the plan is for: its number of tokens, or None."""

    heads: int
    kv_heads: int
    size: int
    window: int | None = None
    graph_tokens: int | None = None


def tile_of(queries: int, size: int) -> int:
    if queries > 64 and size < 256:
        return 128
    return 64 if queries > 16 else 16


def planned_bytes(device: Device, attention: Attention, queries: Sequence[int], pages: Sequence[int], page: int) -> int:
    """The bytes of the float workspace for requests with so many `queries` and `pages`; 0 if nothing is divided."""
    group = attention.heads // attention.kv_heads
    packed = [count * group for count in queries]
    most = 2 * device.processors // attention.kv_heads
    tokens = attention.graph_tokens
    if tokens is None:
        tile = tile_of(sum(packed) // len(packed), attention.size)
        tiles = sum(-(-count // tile) for count in packed)
    else:
        tile = tile_of((tokens - len(queries) + 1) * group, attention.size)
        tiles = -(-tokens * group // tile) + len(queries) - 1
    seen = list(pages)
    if attention.window is not None:
        seen = [min(-(-(attention.window - 1 + tile) // page), count) for count in pages]
    low, high = max(SHORTEST_CHUNK // page, 1), max([1, *seen])
    longest = high
    while low < high:
        middle = (low + high) // 2
        parts = sum(-(-count // tile) * -(-max(held, 1) // middle) for count, held in zip(packed, seen, strict=True))
        low, high = (middle + 1, high) if parts > most else (low, middle)
    if tokens is None and low >= longest:
        return 0
    parts = sum(-(-count // tile) * -(-max(held, 1) // low) for count, held in zip(packed, seen, strict=True))
    places = parts if tokens is None else max(most, tiles)
    assert parts <= places
    values = attention.heads * places * tile * attention.size * 4
    sums = attention.heads * places * tile * 4
    return -(-values // 16) * 16 + sums
