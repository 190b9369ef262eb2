"""Input of telemetry: one record per call and one per interaction, each made after its end."""

from dataclasses import dataclass

from fairlead.outcomes import FinishReason, Outcome
from serving.sampling_params import SamplingParams

GATEWAY = "fairlead-gateway"
SCHEDULER = "fairlead-global-scheduler"
WORKER = "fairlead-local-worker"
PICKER = "fairlead-endpoint-picker"
THROTTLER = "fairlead-throttler"

# Operations of the GenAI conventions. A call that could not be parsed counts as a chat.
CHAT = "chat"
TEXT_COMPLETION = "text_completion"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """The record of one call, made after its end.

    Times are Unix nanoseconds; 0: the call never reached this point. `finished` is always given.
    """

    client: str
    app: str  # the app for which the call is counted
    named_app: str = ""  # the app that the caller named, if the call is counted for another one
    interaction: str = ""  # id; empty: the call stands alone
    is_rooted: bool = True  # the interaction is in progress, so its root span will be exported later
    stage: int = 0
    request_id: str
    caller_request_id: str = ""  # chosen by the caller; several calls may have the same
    operation: str = CHAT
    model: str  # empty: the call named no model that is served
    worker: str = ""
    worker_instance: str = ""  # id of the worker's process
    scheduler: str = ""  # id of the scheduler's process; empty: the gateway chose the worker itself
    policy: str = ""  # the local queue policy
    tier: str = ""  # name of the client's tier; empty: its key has none
    traceparent: str = ""  # W3C traceparent of the caller; empty: none
    sampling: SamplingParams | None = None  # None: the call ended before its parameters were validated
    outcome: Outcome
    finish_reason: FinishReason | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    system_tokens: int = 0
    matched_tokens: int = 0  # prompt tokens that the worker held, according to the scheduler's index
    service: float = 0.0  # the charge in cost units, before division by weight
    retries: int = 0  # dispatches after the first
    prediction_error: float | None = None  # seconds by which its predicted wait for a start was too long
    received: int
    admitted: int = 0
    dispatched: int = 0
    queued: int = 0
    scheduled: int = 0
    first_token: int = 0
    finished: int  # the end of the call at the gateway

    @property
    def seconds(self) -> float:
        """Seconds from the call's arrival at the gateway to its end there."""
        return (self.finished - self.received) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractionRecord:
    """The record of a closed interaction whose calls carried no traceparent. Times are Unix nanoseconds."""

    client: str
    app: str
    interaction: str
    calls: int
    reason: str  # throttler.core.interactions.Close
    started: int
    ended: int

    @property
    def trace_name(self) -> tuple[str, str, str]:
        """The key of the interaction's trace."""
        return self.client, self.app, self.interaction


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a call's time; the phases of a call cover it without gaps or overlaps. Times are Unix nanoseconds."""

    name: str
    service: str  # the service in which the time was spent
    instance: str  # id of that service's process; empty: the gateway that exports the phase
    start: int
    end: int


def phases(call: CallRecord) -> list[Phase]:
    """Return the phases that the call reached; the last one ends with the call, even if clocks differ."""
    ends = [
        ("admit", GATEWAY, "", call.admitted),
        ("select", SCHEDULER if call.scheduler else GATEWAY, call.scheduler, call.dispatched),
        ("queue", WORKER, call.worker_instance, call.scheduled),
        ("prefill", WORKER, call.worker_instance, call.first_token),
        ("decode", WORKER, call.worker_instance, call.finished),
    ]
    reached: list[Phase] = []
    start = call.received
    for name, service, instance, end in ends:
        if name == "decode" or not end:
            return [*reached, Phase(name, service, instance, start, call.finished)]
        # Clocks of machines differ: a phase must not begin before the previous one ends, nor end after the call.
        clamped = min(max(end, start), call.finished)
        reached.append(Phase(name, service, instance, start, clamped))
        start = clamped
    return reached
