"""Token ids on the wire: packed little-endian uint32."""

import struct
from collections.abc import Sequence

TOKEN_BYTES = 4


def pack_ids(ids: Sequence[int]) -> bytes:
    """Pack token ids as little-endian uint32."""
    return struct.pack(f"<{len(ids)}I", *ids)


def unpack_ids(packed: bytes) -> list[int]:
    """Return the token ids that `pack_ids` packed; raise ValueError if the length is not a multiple of 4 bytes."""
    if len(packed) % TOKEN_BYTES:
        raise ValueError(f"packed token ids must be a multiple of {TOKEN_BYTES} bytes, got {len(packed)}")
    return list(struct.unpack(f"<{len(packed) // TOKEN_BYTES}I", packed))
