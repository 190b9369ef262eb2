"""The data that passes through a backend for one attempt of a call: the submission and the events.

Times are seconds of the monotonic clock; the time of an event that has not happened is None. Service is in micro-units
of cost.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.outcomes import FinishReason, Outcome
from local_worker.core.output import Output
from serving.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request to compute, or to continue after the loss of another worker. Fields are as in worker.proto."""

    request_id: str
    attempt: int
    client: str
    model: str
    token_ids: bytes  # packed: the prompt, then the tokens of earlier attempts
    generated_tokens: int  # number of these tokens that earlier attempts generated
    sampling: SamplingParams
    weight: float
    user_weight: float
    interaction: str
    in_interaction: bool
    cache_scope: str
    timeout_seconds: float | None
    system_tokens: int
    charged: bool
    public_tokens: int


class AttemptAccepted(NamedTuple):
    """The acceptance of an attempt, which waits or runs now.

    `weight` is share x norm; `prompt_tokens` does not count the output of earlier attempts; `cached_tokens` are those
    that the prefix cache then held.
    """

    request_id: str
    attempt: int
    client: str
    model: str
    prompt_tokens: int
    weight: float
    cached_tokens: int


class AttemptStarted(NamedTuple):
    """The first entry of an attempt into the running batch; its service by then is `service`."""

    request_id: str
    attempt: int
    cached_tokens: int
    service: int


class AttemptEnded(NamedTuple):
    """The end of an attempt, with the `text` that was still held back; `reason` is given only for COMPLETED.

    `stop_string` is the one that ended the output; it is empty if none did. `field` is the path of a field that is the
    reason of REJECTED_INVALID.
    """

    request_id: str
    attempt: int
    outcome: Outcome
    reason: FinishReason | None = None
    message: str = ""
    text: str = ""
    stop_string: str = ""
    field: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    service: int = 0
    queued_at: float | None = None
    started_at: float | None = None
    first_token_at: float | None = None
    ended_at: float | None = None


@dataclass(slots=True)
class AttemptEvents:
    """The events of one owner's attempts.

    The events of one attempt happened in the order of the fields. Within a field events are in order of time.
    """

    started: list[AttemptStarted] = field(default_factory=list)
    tokens: list[Output] = field(default_factory=list)
    ended: list[AttemptEnded] = field(default_factory=list)
