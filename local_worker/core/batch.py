"""The contract between the core and an engine: a frozen batch in, its sampled tokens out.

An engine may run ahead: the next batch is launched before the tokens of the last one are known to the host. What such a
batch lacks, the engine takes from where it sampled it.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from local_worker.core.request import Request


class Slice(NamedTuple):  # one per request and step: a frozen dataclass takes three times as long to make
    """Tokens `[start, stop)` of one request, to be computed in one step.

    Keys and values of `[0, start)` are already in `pages`; those of the slice are written there by the step.
    Page i holds tokens `[i * B, (i + 1) * B)`. With `samples`, the slice ends at the request's last token and the step
    samples the next one. Where `source` is k, the slice is one token that the host does not know yet: the k-th that the
    batch before samples.
    """

    request: Request
    start: int
    stop: int
    pages: tuple[int, ...]
    samples: bool
    source: int | None = None


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


class Pending(Protocol):
    """A step that was launched."""

    def wait(self) -> StepResult:
        """What it sampled, once it is computed. Raises on failure; then the pages of the batch's requests hold nothing
        of use, nor do those of a batch that was launched after it."""


@dataclass(frozen=True, slots=True)
class Done:
    """See Pending; it was computed when it was launched."""

    result: StepResult

    def wait(self) -> StepResult:
        """See Pending."""
        return self.result


class Engine(Protocol):
    """Executes batches in the order of their launches. Deterministic for given batches; called by one thread only."""

    @property
    def ahead(self) -> int:
        """How many steps may be under way while the next is planned: 0, or 1 where it computes beside its caller."""

    def launch(self, batch: Batch) -> Pending:
        """Begin to compute the batch; at most `ahead` are unfinished before. Raises as `Pending.wait` does.

        Reads the requests' records, and nothing of them later than this call.
        """
