"""Prompts without text: runs of tokens that are equal exactly where the story says that they are shared."""

from array import array
from collections.abc import Sequence
from itertools import count

from serving.blocks import chain, root_seed, unpack_digests

BLOCK_TOKENS = 16
CHAIN_SEED = root_seed("simulation", "model", "scope")
EOS = 0
LONGEST_RUN = 1 << 24
_SEGMENT = 1 << 31  # segments and outputs never meet
_APART = 1 << 12  # between the first tokens of two outputs
_OUTPUTS = _SEGMENT - LONGEST_RUN


class PromptSegments:
    """Numbers runs of prompt tokens; equal numbers, equal content."""

    def __init__(self) -> None:
        self._numbers = count()

    def token(self) -> int:
        """What the next run consists of."""
        return _SEGMENT | next(self._numbers)

    def fresh(self, length: int) -> list[int]:
        """`length` tokens that nobody else has."""
        return [self.token()] * length


def output_run(call: int, start: int, stop: int) -> range:
    """Tokens `[start, stop)` of the output of call number `call`: what a later prompt quotes; never EOS.

    A long one runs into the numbers of the next call's, but no two have the same token at the same offset, and only
    equal offsets are compared: digests chain. Numbers repeat after half a million calls.
    """
    base = call * _APART % _OUTPUTS + 1
    return range(base + start, base + stop)


def digests_of(tokens: Sequence[int], block_tokens: int) -> list[int]:
    """The prompt's block chain, as a worker's tokenizer makes it."""
    return list(unpack_digests(chain(array("I", tokens).tobytes(), block_tokens, CHAIN_SEED)))
