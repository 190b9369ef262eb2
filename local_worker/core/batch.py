"""The contract between the core and an engine: a frozen batch in, its sampled tokens out."""

from dataclasses import dataclass
from typing import Protocol

from local_worker.core.request import Request


@dataclass(frozen=True, slots=True)
class Slice:
    """Tokens `[start, stop)` of one request, to be computed in one step.

    Keys and values of `[0, start)` are already in `pages`; those of the slice are written there by the step.
    Page i holds tokens `[i * B, (i + 1) * B)`. With `samples`, the slice ends at the request's last token and the step
    samples the next one.
    """

    request: Request
    start: int
    stop: int
    pages: tuple[int, ...]
    samples: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """One engine step: at most one slice per request, prefill and decode mixed."""

    slices: tuple[Slice, ...]

    @property
    def tokens(self) -> int:
        """Tokens computed by the step."""
        return sum(piece.stop - piece.start for piece in self.slices)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The model's log-probability of a token, and the most likely tokens at its place with theirs, best first."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class StepResult:
    """`tokens[k]` belongs to the k-th slice of the batch that has `samples`; so does `logprobs[k]`."""

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs | None, ...] = ()  # empty when nobody asked


class Engine(Protocol):
    """Executes batches. Deterministic for a given batch; called by one thread only."""

    def step(self, batch: Batch) -> StepResult:
        """Compute the batch. Raises on failure; then the pages of its requests hold nothing of use."""
