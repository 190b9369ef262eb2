"""An engine whose model reads its whole context from pages, so that errors in the pages show in its tokens; it also
remembers each running request, so that errors in what it is told of them show."""

from collections.abc import Sequence

from local_worker.core.batch import Batch, CompletedStep, Slice, StepResult
from tests.unit.local_worker.engine.driving import BLOCK

EOS = 9


def next_token(context: Sequence[int]) -> int:
    """What the model says after `context`: sometimes the end-of-sequence token."""
    return (sum((at + 1) * token for at, token in enumerate(context)) * 7 + len(context)) % (EOS + 1)


def lone_output(prompt: Sequence[int], most: int) -> list[int]:
    """What a request gets that is alone."""
    output: list[int] = []
    while len(output) < most and EOS not in output:
        output.append(next_token([*prompt, *output]))
    return output


class Device:
    """See Engine."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        self._slots: dict[tuple[int, int], int] = {}
        self._sampled: tuple[int, ...] = ()
        self.known: dict[int, tuple[int, ...]] = {}  # running request -> its tokens when it entered
        self.late: set[int] = set()  # requests whose masks are not ready
        self._deferred: tuple[int, ...] = ()  # rows of the last batch
        self._missed: set[int] = set()  # requests that were deferred and have not been computed again

    def launch(self, batch: Batch) -> CompletedStep:
        """See Engine: first everything is written, then read; done at once, as on a stream that nobody waits for."""
        self._remember(batch)
        for piece in batch.slices:
            for at, token in enumerate(self._inputs(piece), start=piece.start):
                self._slots[piece.pages[at // BLOCK], at % BLOCK] = token
        pieces = [piece for piece in batch.slices if piece.samples]
        self._deferred = tuple(
            row
            for row, piece in enumerate(pieces)
            if piece.request in self.late or (piece.source is not None and piece.source in self._deferred)
        )
        self._sampled = tuple(
            -1 if row in self._deferred else next_token(self._context(piece)) for row, piece in enumerate(pieces)
        )
        ready = tuple(self._missed - self.late - {piece.request for piece in batch.slices})
        self._missed |= {pieces[row].request for row in self._deferred}
        return CompletedStep(StepResult(self._sampled, deferred=self._deferred, ready=ready))

    def check(self) -> None:
        """See Engine."""

    def close(self) -> None:
        """See Engine."""

    def _remember(self, batch: Batch) -> None:
        for request in batch.left:
            del self.known[request]
            self._missed.discard(request)
        for request, tokens, _ in batch.entered:
            assert request not in self.known or request in self._missed
            self._missed.discard(request)
            self.known[request] = tokens
        assert {entry.request for entry in batch.entered} <= {piece.request for piece in batch.slices}
        for piece in batch.slices:
            tokens = self.known[piece.request]
            if piece.source is None and piece.stop <= len(tokens):
                assert piece.tokens == tokens[piece.start : piece.stop]

    def _inputs(self, piece: Slice) -> list[int]:
        if piece.source is not None:
            return [self._sampled[piece.source]]
        return [*piece.tokens]

    def _context(self, piece: Slice) -> list[int]:
        return [self._slots[piece.pages[at // BLOCK], at % BLOCK] for at in range(piece.stop)]
