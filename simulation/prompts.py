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


class Segments:
    """Numbers runs of prompt tokens; equal numbers, equal content."""

    def __init__(self) -> None:
        self._numbers = count()

    def fresh(self, length: int) -> list[int]:
        """`length` tokens that nobody else has."""
        return [_SEGMENT | next(self._numbers)] * length


def output_token(call: int, position: int) -> int:
    """The token at `position` of the output of call number `call`; never EOS."""
    return (call << _OUTPUT_BITS & _SEGMENT - 1) | position % ((1 << _OUTPUT_BITS) - 1) + 1


def output_of(call: int, length: int) -> list[int]:
    """The first `length` output tokens of a call: what a later prompt quotes."""
    return [output_token(call, position) for position in range(length)]


def digests_of(tokens: Sequence[int], block_tokens: int) -> list[int]:
    """The prompt's block chain, as a worker's tokenizer makes it."""
    return list(unpack_digests(chain(array("I", tokens).tobytes(), block_tokens, CHAIN_SEED)))
