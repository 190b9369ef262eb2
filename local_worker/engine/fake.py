"""A deterministic stand-in for a model: no torch, no weights, the same contract. For fast tests and rehearsals."""

import time

import xxhash

from fairlead.blocks import pack_ids
from local_worker.core.batch import Batch, StepResult

# Printable ASCII, so that the byte tokenizer's text can be read.
FIRST, COUNT = ord(" "), 95
WINDOW = 64


class FakeEngine:
    """The next token is a function of the last tokens and the position, whatever else is in the batch."""

    def __init__(self, vocab_size: int, step_seconds: float) -> None:
        self.vocab_size = vocab_size
        self._step_seconds = step_seconds

    def step(self, batch: Batch) -> StepResult:
        """See Engine; takes `step_seconds`, as a model would."""
        if self._step_seconds:
            time.sleep(self._step_seconds)
        return StepResult(tuple(self._next(piece.request.tokens) for piece in batch.slices if piece.samples))

    def _next(self, tokens: list[int]) -> int:
        digest = xxhash.xxh3_64_intdigest(pack_ids(tokens[-WINDOW:]), len(tokens))
        return FIRST + digest % COUNT
