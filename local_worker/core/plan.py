"""What a batcher decides for one step, and what comes of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlead.outcomes import FinishReason
from local_worker.core.batch import Batch, SampledLogprobs, Slice
from local_worker.core.request import Request


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: what to compute, and who has just entered the running batch, for the first time or again."""

    batch: Batch
    requests: tuple[Request, ...]  # the k-th slice of the batch is of the k-th request
    admitted: tuple[Request, ...]

    @property
    def parts(self) -> Iterator[tuple[Request, Slice]]:
        """Each request with its slice."""
        return zip(self.requests, self.batch.slices, strict=True)


class Advance(NamedTuple):
    """One request's next tokens, one from an engine's step; `finish` when the last of them ends the output."""

    request: Request
    tokens: Sequence[int]
    finish: FinishReason | None
    logprobs: SampledLogprobs | None = None  # of the last token, when the caller asked
