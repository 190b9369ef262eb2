"""One attempt of a call at one worker, and the events of its life."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from fairlead.outcomes import FinishReason, Outcome
from local_worker.core.output import Output
from local_worker.core.output_text import Text
from local_worker.core.request import Request

Owner = TypeVar("Owner", bound=Hashable)


@dataclass(slots=True, eq=False)
class Job(Generic[Owner]):
    """One attempt of a call: a record that only the job table changes, from `submit` until the job has ended.

    `owner` receives the job's events: it is a gateway's stream. Times are seconds on the clock of the job table's
    `now`; the time of an event that has not happened is None.
    """

    owner: Owner
    request: Request
    attempt: int
    text: Text
    queued_at: float
    started_at: float | None = None  # first entry into the running batch
    first_token_at: float | None = None
    ended_at: float | None = None


class JobStarted(NamedTuple, Generic[Owner]):
    """The first entry of `job` into the running batch, with the `service` received so far in micro-units."""

    job: Job[Owner]
    service: int


class JobEnded(NamedTuple, Generic[Owner]):
    """The end of `job`, with the `text` that was still held back; `reason` is given only for COMPLETED.

    `stop_string` is the one that ended the output; it is empty if none did.
    """

    job: Job[Owner]
    outcome: Outcome
    reason: FinishReason | None = None
    message: str = ""
    text: str = ""
    stop_string: str = ""


@dataclass(slots=True)
class JobEvents(Generic[Owner]):
    """The events since the last call of `take_events`.

    The events of one job happened in the order of the fields. Within a field events are in order of time.
    """

    accepted: list[Job[Owner]] = field(default_factory=list)
    started: list[JobStarted[Owner]] = field(default_factory=list)
    tokens: list[tuple[Job[Owner], Output]] = field(default_factory=list)
    ended: list[JobEnded[Owner]] = field(default_factory=list)
