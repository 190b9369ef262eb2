"""One attempt of a call at one worker, and the events in its life."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from fairlead.outcomes import FinishReason, Outcome
from local_worker.core.batch import SampledLogprobs
from local_worker.core.output_text import Text
from local_worker.core.request import Request

Owner = TypeVar("Owner", bound=Hashable)


@dataclass(slots=True, eq=False)
class Job(Generic[Owner]):
    """A record. The job table alone changes it, from `submit` until the job has ended; then nobody does.

    `owner` receives its events: a gateway's stream. Times are seconds of the clock whose `now` the job table is given;
    those of events that have not happened are None.
    """

    owner: Owner
    request: Request
    attempt: int
    text: Text
    queued_at: float
    started_at: float | None = None  # when it first entered the running batch
    first_token_at: float | None = None
    ended_at: float | None = None


class JobStarted(NamedTuple, Generic[Owner]):
    """`job` has entered the running batch for the first time; it was charged `service` micro-units by then."""

    job: Job[Owner]
    service: int


class JobTokens(NamedTuple, Generic[Owner]):
    """`job` has generated `tokens`, which release `text`; it was charged `service` micro-units by then."""

    job: Job[Owner]
    tokens: Sequence[int]
    text: str
    logprobs: SampledLogprobs | None  # of the last token; None when the caller did not ask
    service: int


class JobEnded(NamedTuple, Generic[Owner]):
    """`job` has ended, with the `text` that was still held back; `reason` is given for COMPLETED alone."""

    job: Job[Owner]
    outcome: Outcome
    reason: FinishReason | None = None
    message: str = ""
    text: str = ""


@dataclass(slots=True)
class JobEvents(Generic[Owner]):
    """Events since the last look. A job's come in the order of the fields; within a field in order of time."""

    accepted: list[Job[Owner]] = field(default_factory=list)
    started: list[JobStarted[Owner]] = field(default_factory=list)
    tokens: list[JobTokens[Owner]] = field(default_factory=list)
    ended: list[JobEnded[Owner]] = field(default_factory=list)
