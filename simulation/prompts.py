"""Prompts without text: runs of tokens that are equal exactly where two prompts share content."""

from array import array
from collections.abc import Sequence
from itertools import count

from serving.blocks import chain, root_seed, unpack_digests

BLOCK_TOKENS = 16
CHAIN_SEED = root_seed("simulation", "model", "scope")
EOS = 0
LONGEST_RUN = 1 << 24
_SEGMENT = 1 << 31  # first token of segments; outputs use smaller ones
_APART = 1 << 12  # distance between the first tokens of two outputs
_OUTPUTS = _SEGMENT - LONGEST_RUN


class PromptSegments:
    """A source of runs of prompt tokens. Runs with equal numbers have equal content."""

    def __init__(self) -> None:
        self._numbers = count()

    def token(self) -> int:
        """Return the token that the next run repeats."""
        return _SEGMENT | next(self._numbers)

    def fresh(self, length: int) -> list[int]:
        """Return `length` tokens that no other prompt contains."""
        return [self.token()] * length


def output_run(call: int, start: int, stop: int) -> range:
    """Return tokens `[start, stop)` of the output of call number `call`, which later prompts may quote; none of them is
    EOS.

    The numbers of a long output overlap those of the next call's output. Two outputs still never have the same token at
    the same offset, and only equal offsets are compared, because digests chain. Numbers repeat after half a million
    calls.
    """
    base = call * _APART % _OUTPUTS + 1
    return range(base + start, base + stop)


def digests_of(tokens: Sequence[int], block_tokens: int) -> list[int]:
    """Return the prompt's block chain as a worker's tokenizer computes it."""
    return list(unpack_digests(chain(array("I", tokens).tobytes(), block_tokens, CHAIN_SEED)))
