"""The contract between the core and an engine: the core hands in a batch, the engine returns its sampled tokens.

A batch is complete plain data: an engine needs no other data about a request, and may run in another process. An
engine may keep state of running requests: a batch says which requests have entered the running batch and which have
left it since the batch before.

An engine may run ahead: the next batch is launched before the host knows the tokens of the previous one. The engine
takes such tokens from its own samples of the previous batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from serving.sampling_params import SamplingParams


class Slice(NamedTuple):  # made once per request and step; a frozen dataclass takes three times as long to make
    """Positions `[start, stop)` of one request, computed in one step, and the data needed to sample the next token.

    Keys and values of `[0, start)` are already in `pages`; the step writes those of the slice. With B tokens per page,
    page i holds positions `[i * B, (i + 1) * B)`. If `samples`, the slice ends at the request's last token and the step
    samples the next one. If `source` is k, the slice is one token that the host does not know yet: the k-th sample of
    the previous batch; `tokens` is empty then. The first `prompt_tokens` positions were part of the request when it
    arrived at this worker; the last `seed_position` of them are output of earlier attempts.
    """

    request: int  # sequence number of the request's arrival
    tokens: tuple[int, ...]  # token ids at the positions
    start: int
    stop: int
    pages: tuple[int, ...]
    samples: bool
    sampling: SamplingParams
    prompt_tokens: int
    seed_position: int = 0
    source: int | None = None
    context: bytes = b""  # known tokens at `[0, stop)`, packed, if penalties need them; otherwise empty
    model: str = ""  # name of the model to run, if the engine serves several
    scored: tuple[int, ...] = ()  # the prompt's tokens that follow the positions, if the caller requests their logprobs

    @property
    def output_tokens(self) -> int:
        """The number of output tokens of this worker before the one that the slice samples, unknown tokens included."""
        return self.stop - self.prompt_tokens


class Entry(NamedTuple):
    """A request that has entered the running batch, for the first time or again, and all its `tokens` that are known.

    Its first slice since then is in the same batch. One that was deferred enters again without having left. Masks of
    its output are made in the turn of its client.
    """

    request: int  # see Slice
    tokens: tuple[int, ...]
    client: str = ""


class Batch(NamedTuple):
    """One engine step: at most one slice per request; prefill and decode are mixed.

    The requests in `left` have ended or were preempted since the previous batch, and have no pages any more. One that
    was preempted may be in `entered` of the same batch or of a later one.
    """

    slices: tuple[Slice, ...]
    entered: tuple[Entry, ...] = ()
    left: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        """The number of tokens that the step computes."""
        return sum(piece.stop - piece.start for piece in self.slices)


@dataclass(frozen=True, slots=True)
class SampledLogprobs:
    """The log-probability of a token, and the most likely tokens at its position with theirs, best first."""

    logprob: float
    top: tuple[tuple[int, float], ...]


class StepResult(NamedTuple):
    """The samples of a step: `tokens[k]` and `logprobs[k]` belong to the k-th slice of the batch that has `samples`.

    `scores[k]` belongs to the k-th slice that has `scored`. An engine may return the scores of a slice with those of a
    later slice of the same prompt, in order; all are known with the slice that samples. An entry (k, reason)
    of `failures` says that the output of the k-th slice that has `samples` cannot go on; `tokens[k]` is of no use then.
    Nor is it for k in `deferred`: the mask of its output is late. An engine that runs ahead also defers what builds on
    such a token in the next batch. The slice's last position is computed again in a later batch, which the request
    enters again; `ready` are the requests whose masks are no longer late. Of a run of decoding steps (see Plan) only
    `runs` are given: `runs[k]` are the tokens of the k-th slice, whose output may end before the run does.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[SampledLogprobs | None, ...] = ()  # empty if no slice requested them
    scores: tuple[tuple[SampledLogprobs, ...], ...] = ()
    failures: tuple[tuple[int, str], ...] = ()
    deferred: tuple[int, ...] = ()
    ready: tuple[int, ...] = ()  # see Slice.request
    runs: tuple[Sequence[int], ...] = ()


class EngineLost(Exception):
    """The engine can compute no step any more: its worker has to end."""


class PendingStep(Protocol):
    """A step that was launched and may still be computing."""

    def wait(self) -> StepResult:
        """Return the samples of the step once it is computed; raise EngineLost, or the error for which it failed.

        After a failure the contents of the pages of the batch's requests are undefined. So are those of any batch that
        was launched after it.
        """


@dataclass(frozen=True, slots=True)
class CompletedStep:
    """A PendingStep that was computed at its launch."""

    result: StepResult

    def wait(self) -> StepResult:
        return self.result


class Engine(Protocol):
    """The executor of batches, in the order of their launches.

    It is deterministic: equal batches give equal samples, but for those that it defers. Only one thread calls it.
    """

    @property
    def ahead(self) -> int:
        """The largest number of unfinished steps at a launch: 1 if the engine computes concurrently, otherwise 0."""

    def launch(self, batch: Batch) -> PendingStep:
        """Start to compute the batch, while at most `ahead` earlier steps are unfinished; raise as `PendingStep.wait`
        does."""

    def check(self) -> None:
        """Raise EngineLost if that is known without a step; an idle worker asks this again and again."""

    def close(self) -> None:
        """Release the device and end the engine's processes. Nothing is called afterwards."""
