"""The block chain: prefixes have the same digests in the cache, the queue, the scheduler and on the wire.

Token ids are cut into blocks of `block_tokens`; block k's digest is `xxh3_64(ids of block k, seed = digest of k - 1)`,
so equal digests mean equal whole prefixes. Only full blocks count. Ids are packed as in
fairlead.token_ids; digests travel as packed little-endian uint64.
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import xxhash

from fairlead.token_ids import TOKEN_BYTES

DIGEST_BYTES = 8
Link = tuple[int, int]  # digest of a cached block, and that of its parent (0: no parent)


class BlockRun(NamedTuple):
    """A sequence of consecutive blocks of one chain."""

    parent: int  # digest of the block before the first one; 0: the first block begins a chain
    digests: bytes  # packed


def root_seed(secret: str, model: str, scope: str) -> int:
    """Return the seed of a chain's first block; it separates the chains of deployments, models and cache scopes."""
    return xxhash.xxh3_64_intdigest("\0".join((secret, model, scope)).encode())


def branch_seed(digest: int, seed: int) -> int:
    """Return the seed of a chain that continues block `digest` of another scope's chain in the scope of root `seed`."""
    return xxhash.xxh3_64_intdigest(digest.to_bytes(DIGEST_BYTES, "little"), seed)


def chain(packed_ids: bytes, block_tokens: int, seed: int) -> bytes:
    """Return the packed digests of the full blocks of `packed_ids`."""
    size = block_tokens * TOKEN_BYTES
    digests: array[int] = array("Q")
    for start in range(0, len(packed_ids) - size + 1, size):
        seed = xxhash.xxh3_64_intdigest(packed_ids[start : start + size], seed)
        digests.append(seed)
    return pack_digests(digests)


def pack_digests(digests: Sequence[int]) -> bytes:
    """Pack digests as little-endian uint64."""
    return struct.pack(f"<{len(digests)}Q", *digests)


def unpack_digests(packed: bytes) -> tuple[int, ...]:
    """Return the digests that `pack_digests` packed; raise ValueError if the length is not a multiple of 8 bytes."""
    if len(packed) % DIGEST_BYTES:
        raise ValueError(f"packed digests must be a multiple of {DIGEST_BYTES} bytes, got {len(packed)}")
    return struct.unpack(f"<{len(packed) // DIGEST_BYTES}Q", packed)


def reversed_digests(packed: bytes) -> bytes:
    """Return packed digests in reverse order; raise ValueError if the length is not a multiple of 8 bytes."""
    return array("Q", packed)[::-1].tobytes()


def runs(links: Iterable[Link]) -> list[BlockRun]:
    """Group (digest, parent's digest or 0) pairs into runs; a pair whose parent is the pair before it joins its run."""
    starts: list[tuple[int, list[int]]] = []
    last = 0
    for digest, parent in links:
        if starts and parent and parent == last:
            starts[-1][1].append(digest)
        else:
            starts.append((parent, [digest]))
        last = digest
    return [BlockRun(parent, pack_digests(digests)) for parent, digests in starts]
