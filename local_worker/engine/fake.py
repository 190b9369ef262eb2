"""A deterministic stand-in for a model: no torch, no weights, the same contract. For fast tests and rehearsals."""

import time

import xxhash

from fairlead.token_ids import pack_ids
from local_worker.core.batch import Batch, Done, Slice, StepResult

# Printable ASCII, so that the byte tokenizer's text can be read.
FIRST, COUNT = ord(" "), 95
WINDOW = 64


class FakeEngine:
    """The next token is a function of the last tokens and the position, whatever else is in the batch."""

    def __init__(self, vocab_size: int, step_seconds: float, ahead: int = 0) -> None:
        self.ahead = ahead
        self.vocab_size = vocab_size
        self._step_seconds = step_seconds
        self._sampled: tuple[int, ...] = ()

    def launch(self, batch: Batch) -> Done:
        """See Engine; takes `step_seconds`, as a model would."""
        if self._step_seconds:
            time.sleep(self._step_seconds)
        self._sampled = tuple(self._next(piece) for piece in batch.slices if piece.samples)
        return Done(StepResult(self._sampled))

    def _next(self, piece: Slice) -> int:
        last = piece.request.tokens[max(0, piece.stop - WINDOW) : piece.stop]
        if piece.source is not None:
            last.append(self._sampled[piece.source])
        return FIRST + xxhash.xxh3_64_intdigest(pack_ids(last), piece.stop) % COUNT
