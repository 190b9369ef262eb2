"""Coalescing of tokens into messages: a message to a caller costs about 50 us for any number of tokens."""

from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from fairlead.token_ids import TOKEN_BYTES

TOKENS = 4  # per message, which workers gather


class OutputChunk(NamedTuple):
    """Output on its way from a worker to the caller. It is a tuple because one is made for every few tokens."""

    token_ids: bytes  # packed
    text: str = ""
    logprobs: Sequence[object] = ()  # one per token, or none; this module does not read them
    prompt_logprobs: Sequence[object] = ()  # those of the prompt, with the first token; or none
    service: float = 0.0  # the worker's charge for the attempt so far, in cost units

    @property
    def tokens(self) -> int:
        """The number of tokens; 0 for text that belongs to tokens sent earlier."""
        return len(self.token_ids) // TOKEN_BYTES


def joined(chunks: Sequence[OutputChunk]) -> OutputChunk:
    if len(chunks) == 1:
        return chunks[0]
    return OutputChunk(
        b"".join([chunk.token_ids for chunk in chunks]),
        "".join([chunk.text for chunk in chunks]),
        [*chain.from_iterable(chunk.logprobs for chunk in chunks)],
        [*chain.from_iterable(chunk.prompt_logprobs for chunk in chunks)],
    )


class Coalescer:
    """Holds the output that arrives while the caller takes an earlier message.

    A message is one chunk as it came from the worker if the caller wants 1 token per message, otherwise everything that
    is held: workers have gathered the tokens already.
    """

    def __init__(self, tokens_per_message: int) -> None:
        self.tokens_per_message = tokens_per_message
        self._held: deque[OutputChunk] = deque()
        self.tokens = 0  # held

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, chunk: OutputChunk) -> None:
        """Hold the next output."""
        self._held.append(chunk)
        self.tokens += chunk.tokens

    def take(self) -> OutputChunk:
        """Remove and return the next message; something must be held."""
        if self.tokens_per_message == 1:
            chunk = self._held.popleft()
            self.tokens -= chunk.tokens
            return chunk
        chunk = joined(self._held)
        self._held.clear()
        self.tokens = 0
        return chunk
