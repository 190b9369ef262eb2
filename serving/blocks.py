"""The block chain: one identity for prefixes, used by cache, queue, scheduler and wire.

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


class BlockRun(NamedTuple):
    """Blocks that follow each other in a chain."""

    parent: int  # digest of the block before the first; 0: the first begins a chain
    digests: bytes  # packed


def root_seed(secret: str, model: str, scope: str) -> int:
    """The seed of a chain's first block: chains of other deployments, models or scopes never meet."""
    return xxhash.xxh3_64_intdigest("\0".join((secret, model, scope)).encode())


def branch_seed(digest: int, seed: int) -> int:
    """The seed of a chain that goes on from block `digest` of another in a scope of its own, whose root is `seed`."""
    return xxhash.xxh3_64_intdigest(digest.to_bytes(DIGEST_BYTES, "little"), seed)


def chain(packed_ids: bytes, block_tokens: int, seed: int) -> bytes:
    """The packed digests of the full blocks of `packed_ids`."""
    size = block_tokens * TOKEN_BYTES
    digests: array[int] = array("Q")
    for start in range(0, len(packed_ids) - size + 1, size):
        seed = xxhash.xxh3_64_intdigest(packed_ids[start : start + size], seed)
        digests.append(seed)
    return pack_digests(digests)


def pack_digests(digests: Sequence[int]) -> bytes:
    """Digests as little-endian uint64."""
    return struct.pack(f"<{len(digests)}Q", *digests)


def unpack_digests(packed: bytes) -> tuple[int, ...]:
    """The digests of `pack_digests`; raises ValueError when the length is no multiple of eight."""
    if len(packed) % DIGEST_BYTES:
        raise ValueError(f"packed digests must be a multiple of {DIGEST_BYTES} bytes, got {len(packed)}")
    return struct.unpack(f"<{len(packed) // DIGEST_BYTES}Q", packed)


def runs(links: Iterable[tuple[int, int]]) -> list[BlockRun]:
    """(digest, its parent's or 0) pairs as runs; consecutive pairs that follow each other share one."""
    starts: list[tuple[int, list[int]]] = []
    last = 0
    for digest, parent in links:
        if starts and parent and parent == last:
            starts[-1][1].append(digest)
        else:
            starts.append((parent, [digest]))
        last = digest
    return [BlockRun(parent, pack_digests(digests)) for parent, digests in starts]
