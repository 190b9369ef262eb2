"""The contract between the core and an engine: a batch in, its sampled tokens out.

A batch is plain data and complete: an engine needs nothing else of a request, and may be in another process.

An engine may run ahead: the next batch is launched before the tokens of the last one are known to the host. What such a
batch lacks, the engine takes from where it sampled it.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from serving.sampling_params import SamplingParams


class Slice(NamedTuple):  # one per request and step: a frozen dataclass takes three times as long to make
    """Positions `[start, stop)` of one request, to be computed in one step, and what it takes to sample the next token.

    Keys and values of `[0, start)` are already in `pages`; those of the slice are written there by the step. Page i
    holds positions `[i * B, (i + 1) * B)`. With `samples`, the slice ends at the request's last token and the step
    samples the next one. Where `source` is k, the slice is one token that the host does not know yet: the k-th that
    the batch before samples; then `tokens` is empty. The first `prompt_tokens` positions were there when the
    request came to this worker; the last `seed_position` of these are output of earlier attempts.
    """

    request: int  # its number in order of arrival
    tokens: tuple[int, ...]  # at the positions
    start: int
    stop: int
    pages: tuple[int, ...]
    samples: bool
    sampling: SamplingParams
    prompt_tokens: int
    seed_position: int = 0
    source: int | None = None
    context: tuple[int, ...] = ()  # known tokens at `[0, stop)`, where penalties need them; otherwise empty
    model: str = ""  # which of the engine's models, where it serves several

    @property
    def output_tokens(self) -> int:
        """Tokens that this worker generated before the one that the slice samples, unknown ones included."""
        return self.stop - self.prompt_tokens


@dataclass(frozen=True, slots=True)
class Batch:
    """One engine step: at most one slice per request, prefill and decode mixed."""

    slices: tuple[Slice, ...]

    @property
    def tokens(self) -> int:
        """Tokens computed by the step."""
        return sum(piece.stop - piece.start for piece in self.slices)


@dataclass(frozen=True, slots=True)
class SampledLogprobs:
    """The model's log-probability of a token, and the most likely tokens at its place with theirs, best first."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class StepResult:
    """`tokens[k]` belongs to the k-th slice of the batch that has `samples`; so does `logprobs[k]`."""

    tokens: tuple[int, ...]
    logprobs: tuple[SampledLogprobs | None, ...] = ()  # empty when nobody asked


class PendingStep(Protocol):
    """A step that was launched."""

    def wait(self) -> StepResult:
        """What it sampled, once it is computed. Raises on failure; then the pages of the batch's requests hold nothing
        of use, nor do those of a batch that was launched after it."""


@dataclass(frozen=True, slots=True)
class CompletedStep:
    """See PendingStep; it was computed when it was launched."""

    result: StepResult

    def wait(self) -> StepResult:
        """See PendingStep."""
        return self.result


class Engine(Protocol):
    """Executes batches in the order of their launches. Deterministic for given batches; called by one thread only."""

    @property
    def ahead(self) -> int:
        """How many steps may be under way while the next is planned: 0, or 1 where it computes beside its caller."""

    def launch(self, batch: Batch) -> PendingStep:
        """Begin to compute the batch; at most `ahead` are unfinished before. Raises as `PendingStep.wait` does."""
