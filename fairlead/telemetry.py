"""OpenTelemetry, in one place: one trace per interaction, built after each call's outcome is known.

Spans are finished records (ReadableSpan) with their real times, handed to one batch processor: nothing is created
while a call runs, and services other than the gateway need no tracing of their own. Prompts and outputs never enter.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from fairlead.outcomes import FinishReason, Outcome

GATEWAY = "fairlead-gateway"
SCHEDULER = "fairlead-global-scheduler"
WORKER = "fairlead-local-worker"

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_NO_STATUS = Status()
_SCOPE = InstrumentationScope("fairlead")
Attributes = dict[str, str | int | float | tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call, after it ended. Times are Unix nanoseconds, 0 = never reached; `finished` is always given."""

    client: str
    app: str
    interaction: str = ""  # id; empty: the call stands alone
    stage: int = 0
    request_id: str
    model: str
    worker: str = ""
    policy: str = ""  # the local queue policy
    traceparent: str = ""  # W3C, the caller's; empty: none
    outcome: Outcome
    finish_reason: FinishReason | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    system_tokens: int = 0
    matched_tokens: int = 0  # what the scheduler believed the worker to hold
    retries: int = 0  # dispatches after the first
    received: int
    admitted: int = 0
    dispatched: int = 0
    queued: int = 0
    scheduled: int = 0
    first_token: int = 0
    finished: int  # at the gateway: the call's end


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


class Telemetry:
    """Where records become spans; without a processor they are dropped, at no cost."""

    def __init__(self, processor: SpanProcessor | None = None) -> None:
        self._processor = processor
        self._ids = RandomIdGenerator()
        names = (GATEWAY, SCHEDULER, WORKER) if processor else ()
        self._resources = {name: Resource.create({SERVICE_NAME: name}) for name in names}

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Telemetry":
        """OTLP/gRPC as the standard OTEL_* variables say; nothing unless an endpoint is set.

        `environ` decides whether to export; the SDK reads the exporter's details from the process's environment.
        """
        disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        endpoint = next((environ[name] for name in _ENDPOINTS if environ.get(name)), "")
        if disabled or not endpoint:
            return cls()
        return cls(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))

    def record_call(self, call: CallRecord) -> None:
        """Emit the call's span, and below it one span per phase that it reached; together they tile the call."""
        if self._processor is None:
            return
        parent = _parent(call)
        trace_id = parent.trace_id if parent else _derived("trace", 16, call.client, call.app, call.request_id)
        context = _context(trace_id, self._ids.generate_span_id())
        completed = call.outcome is Outcome.COMPLETED
        status = Status(StatusCode.OK) if completed else Status(StatusCode.ERROR, call.outcome.name)
        self._emit(
            f"chat {call.model}", GATEWAY, context, parent, (call.received, call.finished),
            _call_attributes(call), kind=SpanKind.SERVER, status=status,
        )  # fmt: skip
        start = call.received
        for name, service, end in _phases(call):
            child = _context(trace_id, self._ids.generate_span_id())
            self._emit(name, service, child, context, (start, end), _phase_attributes(name, call))
            start = end

    def record_interaction(self, interaction: InteractionRecord) -> None:
        """Emit the root span of an interaction's calls."""
        if self._processor is None:
            return
        attributes: Attributes = {
            "gen_ai.conversation.id": interaction.interaction,
            "fairlead.client": interaction.client,
            "fairlead.app": interaction.app,
            "fairlead.calls": interaction.calls,
            "fairlead.close_reason": interaction.reason,
        }
        context = _root(interaction.client, interaction.app, interaction.interaction)
        self._emit("interaction", GATEWAY, context, None, (interaction.started, interaction.ended), attributes)

    def shutdown(self) -> None:
        """Export what is left, and stop; blocks as long as the exporter's time-out allows."""
        if self._processor is not None:
            self._processor.shutdown()

    def _emit(
        self,
        name: str,
        service: str,
        context: SpanContext,
        parent: SpanContext | None,
        times: tuple[int, int],
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        status: Status = _NO_STATUS,
    ) -> None:
        assert self._processor is not None, "callers return early without a processor"
        span = ReadableSpan(
            name, context, parent, self._resources[service], attributes, kind=kind, status=status,
            start_time=times[0], end_time=times[1], instrumentation_scope=_SCOPE,
        )  # fmt: skip
        self._processor.on_end(span)


def _phases(call: CallRecord) -> list[tuple[str, str, int]]:
    """(name, service, end) of the phases reached; the last one ends with the call, whatever the clocks say."""
    ends = [
        ("admit", GATEWAY, call.admitted),
        ("select", SCHEDULER, call.dispatched),
        ("queue", WORKER, call.scheduled),
        ("prefill", WORKER, call.first_token),
        ("decode", WORKER, call.finished),
    ]
    phases: list[tuple[str, str, int]] = []
    earliest = call.received
    for name, service, end in ends:
        if name == "decode" or not end:
            return [*phases, (name, service, call.finished)]
        # Clocks of machines differ: a phase neither begins before the last one's end nor ends after the call.
        earliest = min(max(end, earliest), call.finished)
        phases.append((name, service, earliest))
    return phases


def _call_attributes(call: CallRecord) -> Attributes:
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "fairlead",
        "gen_ai.request.model": call.model,
        "gen_ai.response.id": call.request_id,
        "gen_ai.response.model": call.model,
        "gen_ai.usage.input_tokens": call.prompt_tokens,
        "gen_ai.usage.output_tokens": call.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": call.cached_tokens,
        "fairlead.client": call.client,
        "fairlead.app": call.app,
        "fairlead.stage": call.stage,
        "fairlead.outcome": call.outcome.name,
        "fairlead.system_tokens": call.system_tokens,
        "fairlead.retries": call.retries,
    }
    if call.interaction:
        attributes["gen_ai.conversation.id"] = call.interaction
    if call.finish_reason is not None:
        attributes["gen_ai.response.finish_reasons"] = (call.finish_reason.name.lower(),)
    if call.first_token:
        attributes["gen_ai.response.time_to_first_chunk"] = (call.first_token - call.received) / 1e9
    if call.outcome is not Outcome.COMPLETED:
        attributes["error.type"] = call.outcome.name
    return attributes


def _phase_attributes(name: str, call: CallRecord) -> Attributes:
    if name == "select":
        return {"fairlead.worker": call.worker, "fairlead.matched_tokens": call.matched_tokens}
    if name == "queue":
        return {"fairlead.worker": call.worker, "fairlead.policy": call.policy, "fairlead.queued_at": call.queued}
    if name in ("prefill", "decode"):
        return {"fairlead.worker": call.worker}
    return {}


def _parent(call: CallRecord) -> SpanContext | None:
    """The caller's span; else the interaction's root, the same at every gateway; else none."""
    match = _TRACEPARENT.fullmatch(call.traceparent)
    if match and int(match[1], 16) and int(match[2], 16):
        return _context(int(match[1], 16), int(match[2], 16))
    return _root(call.client, call.app, call.interaction) if call.interaction else None


def _root(client: str, app: str, interaction: str) -> SpanContext:
    return _context(_derived("trace", 16, client, app, interaction), _derived("span", 8, client, app, interaction))


def _derived(purpose: str, size: int, *parts: str) -> int:
    """An id that every gateway derives alike."""
    return int.from_bytes(hashlib.sha256("\0".join((purpose, *parts)).encode()).digest()[:size], "big")


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
