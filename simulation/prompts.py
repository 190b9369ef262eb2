"""Prompts without text: runs of tokens that are equal exactly where the story says that they are shared."""

from array import array
from collections.abc import Sequence
from itertools import count

from fairlead.blocks import chain, root_seed, unpack_digests

BLOCK_TOKENS = 16
CHAIN_SEED = root_seed("simulation", "model", "scope")
EOS = 0
_SEGMENT = 1 << 31  # segments and outputs never meet
_OUTPUT_BITS = 12
_OUTPUTS = _SEGMENT - 1


class Segments:
    """Numbers runs of prompt tokens; equal numbers, equal content."""

    def __init__(self) -> None:
        self._numbers = count()

    def fresh(self, length: int) -> list[int]:
        """`length` tokens that nobody else has."""
        return [_SEGMENT | next(self._numbers)] * length


def output_run(call: int, start: int, stop: int) -> range:
    """Tokens `[start, stop)` of the output of call number `call`: what a later prompt quotes; never EOS."""
    base = (call << _OUTPUT_BITS & _OUTPUTS) + 1
    return range(base + start, base + stop)


def digests_of(tokens: Sequence[int], block_tokens: int) -> list[int]:
    """The prompt's block chain, as a worker's tokenizer makes it."""
    return list(unpack_digests(chain(array("I", tokens).tobytes(), block_tokens, CHAIN_SEED)))
