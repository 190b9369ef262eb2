"""Token ids on the wire: packed little-endian uint32."""

import struct
from collections.abc import Sequence

TOKEN_BYTES = 4


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids as little-endian uint32."""
    return struct.pack(f"<{len(ids)}I", *ids)


def unpack_ids(packed: bytes) -> list[int]:
    """The token ids of `pack_ids`; raises ValueError when the length is no multiple of four."""
    if len(packed) % TOKEN_BYTES:
        raise ValueError(f"packed token ids must be a multiple of {TOKEN_BYTES} bytes, got {len(packed)}")
    return list(struct.unpack(f"<{len(packed) // TOKEN_BYTES}I", packed))
