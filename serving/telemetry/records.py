"""What telemetry is told: one record per call and one per interaction, each after its end."""

from dataclasses import dataclass

from fairlead.outcomes import FinishReason, Outcome
from serving.sampling_params import SamplingParams

GATEWAY = "fairlead-gateway"
SCHEDULER = "fairlead-global-scheduler"
WORKER = "fairlead-local-worker"

# Operations of the GenAI conventions. A call that could not be read counts as a chat.
CHAT = "chat"
TEXT_COMPLETION = "text_completion"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call, after it ended. Times are Unix nanoseconds, 0 = never reached; `finished` is always given."""

    client: str
    app: str  # what the call counts as
    named_app: str = ""  # what the caller named, where that is not what the call counts as
    interaction: str = ""  # id; empty: the call stands alone
    is_rooted: bool = True  # the interaction is in progress, so that its root span will come
    stage: int = 0
    request_id: str
    caller_request_id: str = ""  # the caller's own; several calls may have the same
    operation: str = CHAT
    model: str  # empty: the call named none that is served
    worker: str = ""
    worker_instance: str = ""  # the worker's process
    scheduler: str = ""  # the scheduler's process; empty: the gateway chose the worker itself
    policy: str = ""  # the local queue policy
    tier: str = ""  # the name of the client's tier; empty: its key has none
    traceparent: str = ""  # W3C, the caller's; empty: none
    sampling: SamplingParams | None = None  # as asked for, once validated
    outcome: Outcome
    finish_reason: FinishReason | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    system_tokens: int = 0
    matched_tokens: int = 0  # what the scheduler believed the worker to hold
    service: float = 0.0  # what was charged, in cost units, before division by weight
    retries: int = 0  # dispatches after the first
    received: int
    admitted: int = 0
    dispatched: int = 0
    queued: int = 0
    scheduled: int = 0
    first_token: int = 0
    finished: int  # at the gateway: the call's end

    @property
    def seconds(self) -> float:
        """From the call's arrival at the gateway to its end there."""
        return (self.finished - self.received) / 1e9

    @property
    def trace_name(self) -> tuple[str, str, str]:
        """What calls of one trace have in common: an interaction's calls, or the one call."""
        return self.client, self.app, self.interaction or self.request_id


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractionRecord:
    """An interaction that is over, whose calls came without a traceparent. Times are Unix nanoseconds."""

    client: str
    app: str
    interaction: str
    calls: int
    reason: str  # why it closed
    started: int
    ended: int

    @property
    def trace_name(self) -> tuple[str, str, str]:
        """See CallRecord."""
        return self.client, self.app, self.interaction


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a call's time; the parts tile the whole."""

    name: str
    service: str  # which of our services it was spent in
    instance: str  # the process of that service; empty: the gateway that exports it
    start: int
    end: int


def phases(call: CallRecord) -> list[Phase]:
    """The phases that the call reached; the last one ends with the call, whatever the clocks say."""
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
        # Clocks of machines differ: a phase neither begins before the last one's end nor ends after the call.
        clamped = min(max(end, start), call.finished)
        reached.append(Phase(name, service, instance, start, clamped))
        start = clamped
    return reached
