"""The batcher's decision for one step, and the result of the step for each request."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.outcomes import FinishReason
from local_worker.core.batch import Batch, SampledLogprobs, Slice
from local_worker.core.request import Request


class Plan(NamedTuple):
    """One step: its batch, and the requests that have just entered the running batch, for the first time or again.

    A step may be run as several decoding steps: then `lengths` holds the largest number of tokens that each request
    generates in it. No request can enter before the run ends, and one that ends during the run leaves when it ends.
    """

    batch: Batch
    parts: tuple[tuple[Request, Slice], ...]  # each request of the step with its slice of the batch, in its order
    admitted: tuple[Request, ...]
    lengths: tuple[int, ...] = ()  # one per part; empty unless the step is a run

    @property
    def requests(self) -> tuple[Request, ...]:
        """The requests of the step: the k-th slice of the batch belongs to the k-th request."""
        return tuple([request for request, _ in self.parts])


class Advance(NamedTuple):
    """The new tokens of one request: after a commit, one token per step of an engine.

    `finish` is the reason why the output ends with the last of `tokens`; None while it goes on. An output that cannot
    go on has no new tokens, and a `failure` that says why.
    """

    request: Request
    tokens: Sequence[int]
    finish: FinishReason | None
    logprobs: Sequence[SampledLogprobs] = ()  # one per token; empty unless the caller requested them
    # With the first token of an output, if the caller requested them: those of the prompt's tokens but the first.
    scores: Sequence[SampledLogprobs] | None = None
    failure: str = ""
