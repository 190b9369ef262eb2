"""One attempt of a call as it passes through a backend: what is asked, and what became of it. Plain data.

Times are seconds of the monotonic clock, None where something has not happened. Service is in micro-units of cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.outcomes import FinishReason, Outcome
from local_worker.core.batch import SampledLogprobs
from serving.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request to be computed, or to be gone on with after another worker was lost. Fields are as in worker.proto."""

    request_id: str
    attempt: int
    client: str
    model: str
    token_ids: bytes  # packed: the prompt, then the tokens of earlier attempts
    generated_tokens: int  # of these: how many earlier attempts generated
    sampling: SamplingParams
    weight: float
    in_interaction: bool
    cache_scope: str
    timeout_seconds: float | None
    system_tokens: int
    charged: bool
    public_tokens: int


class AttemptAccepted(NamedTuple):
    """The attempt is queued. `prompt_tokens` does not count output of earlier attempts; `weight` is share x norm."""

    request_id: str
    attempt: int
    client: str
    model: str
    prompt_tokens: int
    weight: float


class AttemptStarted(NamedTuple):
    """The attempt has entered the running batch; it was charged `service` by then."""

    request_id: str
    attempt: int
    cached_tokens: int
    service: int


class AttemptTokens(NamedTuple):
    """The attempt has generated `tokens`, which release `text`; it was charged `service` by then."""

    request_id: str
    attempt: int
    tokens: Sequence[int]
    text: str
    logprobs: SampledLogprobs | None  # of the last token; None when the caller did not ask
    service: int


class AttemptEnded(NamedTuple):
    """The attempt has ended, with the `text` that was still held back; `reason` is given for COMPLETED alone."""

    request_id: str
    attempt: int
    outcome: Outcome
    reason: FinishReason | None = None
    message: str = ""
    text: str = ""
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
    """What became of the attempts of one owner. An attempt's events come in the order of the fields; within a field in
    order of time."""

    started: list[AttemptStarted] = field(default_factory=list)
    tokens: list[AttemptTokens] = field(default_factory=list)
    ended: list[AttemptEnded] = field(default_factory=list)
