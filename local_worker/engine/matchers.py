"""The constrained outputs of the running requests: which tokens each of them allows next."""

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import NamedTuple

from local_worker.core.batch import Batch, Entry, Slice
from local_worker.engine.mask_processes import MaskProcesses, SandboxedOutput
from local_worker.engine.mask_threads import MaskThreads
from local_worker.sandbox import Sandbox
from local_worker.sandbox_process import Mask
from serving.names import tenant_of

WAITING_SHARE = 0.2  # of the time from step to step, for which a step waits for masks
LEAST_WAITING_SECONDS = 0.001
LONGEST_STEP_SECONDS = 0.05  # of which the share is taken
AVERAGE = 0.1  # weight of the newest step in the moving average
MICROS = 1_000_000


class TokenMasks(NamedTuple):
    """The tokens that the rows of a step allow; rows that are not in it allow all.

    `allowed` has one bit per token (see Matcher.allowed). The outputs of the rows in `failures` cannot go on, for the
    reasons that it gives, and those in `deferred` have to be sampled in a later step; `ready` are requests of earlier
    steps whose masks are done (see StepResult).
    """

    allowed: Mapping[int, bytes]
    failures: tuple[tuple[int, str], ...] = ()
    deferred: tuple[int, ...] = ()
    ready: tuple[int, ...] = ()


NO_MASKS = TokenMasks({})


class RunningOutput:
    """The constrained output of a running request; `mask` is that of the token at position `read` of the request."""

    def __init__(self, output: SandboxedOutput, threads: MaskThreads, entry: Entry) -> None:
        self.read = len(entry.tokens)
        self.is_late = False  # whether it missed the last step that was to sample its next token
        self.mask: Future[Mask]
        self._output = output
        self._threads = threads
        self._client = entry.client
        self.micros = 1  # what the last mask took

    def advance(self, tokens: Sequence[int], read: int) -> None:
        """Append `tokens`, which end before position `read`, and begin with the next mask."""
        self.read = read
        self.mask = self._threads.submit(self._client, self.micros, partial(self._make, tokens))

    def _make(self, tokens: Sequence[int]) -> Mask:
        began = time.monotonic()
        mask = self._output.mask(tokens)
        self.micros = 1 + int(MICROS * (time.monotonic() - began))
        return mask

    def end(self) -> None:
        """Forget the output."""
        self.mask.cancel()
        self._output.end()


class Matchers:
    """The constrained outputs of the running requests, each a function of the constraint and the known tokens alone.

    So a request that enters the batch again, or at another worker, goes on as if it had never left. Nothing is compiled
    or computed in a step: it waits for masks for a share of its time, and defers the outputs whose masks take longer.
    """

    def __init__(self, sandbox: Sandbox | None) -> None:
        """Follow outputs in processes of `sandbox`; None: no request has a constraint."""
        self._processes = MaskProcesses(sandbox) if sandbox is not None else None
        self._threads = MaskThreads()
        self._running: dict[int, RunningOutput] = {}  # by Slice.request
        self._deferred: frozenset[int] = frozenset()  # rows of the previous batch
        self._late: list[int] = []  # requests
        self._stepped_at = time.monotonic()
        self._step_seconds = 0.0

    def follow(self, batch: Batch) -> None:
        """Begin with the requests that have entered the batch, and forget those that have left.

        Masks that need no sample of the previous batch are begun, so that threads compute them beside the logits.
        """
        for request in batch.left:
            self._forget(request)
        entered: dict[int, Entry] = {}
        for entry in batch.entered:
            former = self._running.get(entry.request)
            if former is not None and former.is_late:  # it goes on
                continue
            if former is not None:
                self._forget(entry.request)
            entered[entry.request] = entry
        for piece in batch.slices:
            if piece.sampling.constraint is None:
                continue
            if piece.request in entered:
                self._begin(piece, entered[piece.request])
            elif piece.samples and piece.source is None:
                self._advance(piece, piece.tokens)

    def _forget(self, request: int) -> None:
        if (former := self._running.pop(request, None)) is not None:
            former.end()

    def _begin(self, piece: Slice, entry: Entry) -> None:
        assert piece.sampling.constraint is not None
        assert self._processes is not None, "the backend refuses what nothing follows"
        output = SandboxedOutput(self._processes, tenant_of(entry.client), piece.sampling.constraint)
        begun = RunningOutput(output, self._threads, entry)
        begun.advance(entry.tokens[piece.prompt_tokens - piece.seed_position :], begun.read)
        self._running[piece.request] = begun

    def _advance(self, piece: Slice, tokens: Sequence[int]) -> None:
        output = self._running[piece.request]
        if piece.stop > output.read:
            output.advance(tokens, piece.stop)

    def needs_samples(self, pieces: Sequence[Slice]) -> bool:
        """Return whether the tokens of the previous batch must be known for the masks of `pieces`."""
        return any(piece.sampling.constraint is not None and piece.source is not None for piece in pieces)

    def masks(self, pieces: Sequence[Slice], before: Sequence[int]) -> TokenMasks:
        """Return the masks of `pieces`, the slices that sample; `before` are the tokens of the previous batch.

        `before` may be empty if `needs_samples` returns False.
        """
        began = time.monotonic()
        latest = min(began - self._stepped_at, LONGEST_STEP_SECONDS)
        self._step_seconds += AVERAGE * (latest - self._step_seconds)
        self._stepped_at = began
        if not (self._running or self._deferred or self._late):
            return NO_MASKS
        outputs: dict[int, RunningOutput] = {}
        deferred: list[int] = []
        for row, piece in enumerate(pieces):
            if piece.sampling.constraint is None:
                continue
            if piece.source in self._deferred:  # its token is not known
                deferred.append(row)
                continue
            if piece.source is not None:
                self._advance(piece, [before[piece.source]])
            outputs[row] = self._running[piece.request]
        self._wait(outputs.values(), len(outputs) == len(pieces))
        allowed: dict[int, bytes] = {}
        failures: list[tuple[int, str]] = []
        for row, output in outputs.items():
            output.is_late = not output.mask.done()
            if output.is_late:
                deferred.append(row)
            elif (mask := output.mask.result()).allowed is None:
                failures.append((row, mask.failure))
            else:
                allowed[row] = mask.allowed
        self._deferred = frozenset(deferred)
        ready = self._ready([pieces[row].request for row in deferred], {piece.request for piece in pieces})
        return TokenMasks(allowed, tuple(failures), tuple(deferred), ready)

    def _ready(self, late: Collection[int], computed: Collection[int]) -> tuple[int, ...]:
        """Return the requests whose masks were late in earlier steps and are ready for a later one."""
        earlier = [request for request in self._late if request in self._running and request not in computed]
        ready = tuple([request for request in earlier if self._running[request].mask.done()])
        self._late = [request for request in (*earlier, *late) if request not in ready]
        return ready

    def _wait(self, outputs: Collection[RunningOutput], is_alone: bool) -> None:
        """Wait for masks, at most for a share of a step.

        Those which take longer by experience are waited for only if nothing else is sampled (`is_alone`).
        """
        seconds = max(LEAST_WAITING_SECONDS, WAITING_SHARE * self._step_seconds)
        missing = [output for output in outputs if not output.mask.done()]
        quick = [output for output in missing if output.micros <= MICROS * seconds]
        if awaited := quick or (missing if is_alone and len(missing) == len(outputs) else ()):
            wait([output.mask for output in awaited], seconds)

    def close(self) -> None:
        """End the processes."""
        if self._processes is not None:
            self._processes.close()
