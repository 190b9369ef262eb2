"""Lengths and prefix blocks of texts whose tokens are unknown: four characters stand for a token."""

from collections.abc import Iterator

import xxhash

from simulation.trace_rows import LONGEST

CHARACTERS = 4  # per token, approximately
TEXT_BLOCK_TOKENS = 16


def text_tokens(text: str) -> int:
    """Return the approximate number of tokens of a text, at most LONGEST."""
    return min(len(text) // CHARACTERS, LONGEST)


def text_blocks(text: str) -> Iterator[int]:
    """Yield the chained ids of the text's full blocks: equal ids mean equal text up to the end of that block."""
    size, digest = CHARACTERS * TEXT_BLOCK_TOKENS, 0
    for index in range(len(text) // size):
        block = text[index * size : (index + 1) * size].encode("utf-8", "surrogatepass")
        digest = xxhash.xxh3_64_intdigest(block, seed=digest)
        yield digest
