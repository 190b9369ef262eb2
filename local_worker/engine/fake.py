"""A deterministic engine without a model, torch or weights, for fast tests and rehearsals."""

import math
import time
from collections import defaultdict

import xxhash

from fairlead.token_ids import pack_ids
from local_worker.core.batch import Batch, CompletedStep, SampledLogprobs, Slice, StepResult
from local_worker.engine.matchers import Matchers
from local_worker.sandbox import Sandbox

# Printable ASCII, so that the byte tokenizer's text is readable.
FIRST, COUNT = ord(" "), 95
WINDOW = 64  # number of last tokens that determine the next one


class FakeEngine:
    """An engine whose next token is a function of the model, the last tokens and the position, never of the rest of the
    batch. See Engine."""

    def __init__(
        self,
        vocab_size: int,
        step_seconds: float,
        block_tokens: int,
        ahead: int = 0,
        sandbox: Sandbox | None = None,
    ) -> None:
        self.ahead = ahead
        self.vocab_size = vocab_size
        self._step_seconds = step_seconds
        self._block_tokens = block_tokens
        # Token ids by page, in place of keys and values.
        self._pages: defaultdict[int, list[int]] = defaultdict(lambda: [0] * block_tokens)
        self._sampled: tuple[int, ...] = ()  # samples of the last batch
        self._matchers = Matchers(sandbox)

    def launch(self, batch: Batch) -> CompletedStep:
        """Compute the batch in `step_seconds`, as a model would; see Engine."""
        self._matchers.follow(batch)
        if self._step_seconds:
            time.sleep(self._step_seconds)
        pieces: list[Slice] = []
        scores: list[tuple[SampledLogprobs, ...]] = []
        for piece in batch.slices:
            self._write(piece)
            if piece.samples:
                pieces.append(piece)
            if piece.scored:
                scores.append(tuple(_score(token, piece) for token in piece.scored))
        masks = self._matchers.masks(pieces, self._sampled)
        sampled: list[int] = []
        logprobs: list[SampledLogprobs | None] = []
        for row, piece in enumerate(pieces):
            token, wanted = self._next(piece, masks.allowed.get(row)), piece.sampling.logprobs
            sampled.append(token)
            logprobs.append(None if wanted is None else _distribution(token, wanted))
        self._sampled = tuple(sampled)
        return CompletedStep(
            StepResult(self._sampled, tuple(logprobs), tuple(scores), masks.failures, masks.deferred, masks.ready)
        )

    def check(self) -> None:
        """See Engine."""

    def close(self) -> None:
        self._matchers.close()

    def _write(self, piece: Slice) -> None:
        tokens = piece.tokens if piece.source is None else (self._sampled[piece.source],)
        size = self._block_tokens
        for page in range(piece.start - piece.start % size, piece.stop, size):  # first position of a page
            begin, end = max(page, piece.start), min(page + size, piece.stop)
            part = tokens[begin - piece.start : end - piece.start]
            self._pages[piece.pages[page // size]][begin - page : end - page] = part

    def _next(self, piece: Slice, allowed: bytes | None) -> int:
        first = max(0, piece.stop - WINDOW) // self._block_tokens
        known: list[int] = []
        for page in piece.pages[first : -(-piece.stop // self._block_tokens)]:
            known += self._pages[page]
        last = known[: piece.stop - first * self._block_tokens][-WINDOW:]
        digest = xxhash.xxh3_64_intdigest(piece.model.encode() + pack_ids(last), piece.stop)
        if allowed is None:
            return FIRST + digest % COUNT
        tokens = [token for token in range(self.vocab_size) if allowed[token // 8] >> token % 8 & 1]
        return tokens[digest % len(tokens)]


def _score(token: int, piece: Slice) -> SampledLogprobs:
    return _distribution(token, piece.sampling.prompt_logprobs or 0)


def _distribution(token: int, count: int) -> SampledLogprobs:
    """Return `count` likely tokens, of which each is half as likely as the one before; the first is `token`."""
    likely = (FIRST + (token - FIRST + rank) % COUNT for rank in range(count))
    return SampledLogprobs(-math.log(2), tuple((each, -math.log(2) * (rank + 1)) for rank, each in enumerate(likely)))
