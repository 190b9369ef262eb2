"""Conversion of records to spans: finished ReadableSpans with their real times. No span is made while a call runs.

There is one trace per interaction; all gateways derive the same ids for it. Below the interaction there is one span per
call, and below each call one per phase. Names and attributes follow the GenAI semantic conventions. Prompts and outputs
are never exported.
"""

import hashlib
import re

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from fairlead.outcomes import Outcome
from serving.telemetry.records import GATEWAY, CallRecord, InteractionRecord, Phase, phases
from serving.telemetry.resources import resource

# Later versions may append fields. Their length is limited because each remembered call keeps its traceparent.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.{0,64})?")
_NO_STATUS = Status()
_SCOPE = InstrumentationScope("fairlead")
_OURS = resource(GATEWAY, "")
_IDS = RandomIdGenerator()
Attributes = dict[str, str | int | float | tuple[str, ...]]


def parent(call: CallRecord) -> SpanContext | None:
    """Return the caller's span with its sampling flag, or else the root span of an interaction in progress.

    Return None if there is neither.
    """
    above = remote(call.traceparent)
    if above is None and call.interaction and call.is_rooted:
        return _root(call.client, call.app, call.interaction)
    return above


def remote(traceparent: str) -> SpanContext | None:
    """Return the span context of a W3C traceparent, or None if it is not valid."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None or not int(match[1], 16) or not int(match[2], 16):
        return None
    return SpanContext(int(match[1], 16), int(match[2], 16), is_remote=True, trace_flags=TraceFlags(int(match[3], 16)))


def trace_id(call: CallRecord) -> int:
    """Return the id of the call's trace: the caller's, the interaction's, or its own."""
    above = parent(call)
    return above.trace_id if above else _derived("trace", 16, call.client, call.app, call.request_id)


def call_context(call: CallRecord) -> SpanContext:
    """Return the context of the call's own span; equal records give equal contexts."""
    return _context(trace_id(call), _derived("span", 8, call.client, call.app, call.request_id))


def call_spans(call: CallRecord) -> list[ReadableSpan]:
    """Return the call's span and its child spans, one per phase that it reached; the phases cover the call."""
    context = call_context(call)
    completed = call.outcome is Outcome.COMPLETED
    status = Status(StatusCode.OK) if completed else Status(StatusCode.ERROR, call.outcome.name)
    span = _span(
        f"{call.operation} {call.model}".rstrip(), _OURS, context, parent(call), (call.received, call.finished),
        _call_attributes(call), kind=SpanKind.SERVER, status=status,
    )  # fmt: skip
    return [span, *(_phase_span(phase, call, context) for phase in phases(call))]


def interaction_span(interaction: InteractionRecord) -> ReadableSpan:
    """Return the root span of an interaction's calls."""
    attributes: Attributes = {
        "gen_ai.conversation.id": interaction.interaction,
        "fairlead.client": interaction.client,
        "fairlead.app": interaction.app,
        "fairlead.calls": interaction.calls,
        "fairlead.close_reason": interaction.reason,
    }
    context = _root(*interaction.trace_name)
    return _span("interaction", _OURS, context, None, (interaction.started, interaction.ended), attributes)


def _phase_span(phase: Phase, call: CallRecord, above: SpanContext) -> ReadableSpan:
    context = _context(above.trace_id, _IDS.generate_span_id())
    process = resource(phase.service, phase.instance)
    return _span(phase.name, process, context, above, (phase.start, phase.end), _phase_attributes(phase, call))


def _span(
    name: str,
    process: Resource,
    context: SpanContext,
    above: SpanContext | None,
    times: tuple[int, int],
    attributes: Attributes,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    status: Status = _NO_STATUS,
) -> ReadableSpan:
    return ReadableSpan(
        name, context, above, process, attributes, kind=kind, status=status,
        start_time=times[0], end_time=times[1], instrumentation_scope=_SCOPE,
    )  # fmt: skip


def _call_attributes(call: CallRecord) -> Attributes:
    attributes: Attributes = {
        "gen_ai.operation.name": call.operation,
        "gen_ai.provider.name": "fairlead",
        "gen_ai.request.stream": True,
        "gen_ai.response.id": call.request_id,
        "gen_ai.usage.input_tokens": call.prompt_tokens,
        "gen_ai.usage.output_tokens": call.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": call.cached_tokens,
        "fairlead.client": call.client,
        "fairlead.app": call.app,
        "fairlead.stage": call.stage,
        "fairlead.outcome": call.outcome.name,
        "fairlead.service": call.service,
        "fairlead.system_tokens": call.system_tokens,
        "fairlead.retries": call.retries,
    }
    if call.model:
        attributes["gen_ai.request.model"] = attributes["gen_ai.response.model"] = call.model
    if call.tier:
        attributes["fairlead.tier"] = call.tier
    if call.sampling is not None:
        attributes["gen_ai.request.max_tokens"] = call.sampling.max_tokens
        attributes["gen_ai.request.temperature"] = call.sampling.temperature
        attributes["gen_ai.request.top_p"] = call.sampling.top_p
    if call.interaction:
        attributes["gen_ai.conversation.id"] = call.interaction
    if call.finish_reason is not None:
        attributes["gen_ai.response.finish_reasons"] = (call.finish_reason.name.lower(),)
    if call.first_token:
        attributes["gen_ai.response.time_to_first_chunk"] = (call.first_token - call.received) / 1e9
    if call.outcome is not Outcome.COMPLETED:
        attributes["error.type"] = call.outcome.name
    return attributes


def _phase_attributes(phase: Phase, call: CallRecord) -> Attributes:
    match phase.name:
        case "select":
            return {"fairlead.worker": call.worker, "fairlead.matched_tokens": call.matched_tokens}
        case "queue":
            return {
                "fairlead.worker": call.worker,
                "fairlead.policy": call.policy,
                "fairlead.queued_at": call.queued,
            }
        case "prefill":
            return {"fairlead.worker": call.worker, "fairlead.cached_tokens": call.cached_tokens}
        case "decode":
            return {"fairlead.worker": call.worker}
    return {}


def _root(client: str, app: str, interaction: str) -> SpanContext:
    return _context(_derived("trace", 16, client, app, interaction), _derived("span", 8, client, app, interaction))


def _derived(purpose: str, size: int, *parts: str) -> int:
    """Derive an id of `size` bytes from `parts`; all gateways derive the same one."""
    return int.from_bytes(hashlib.sha256("\0".join((purpose, *parts)).encode()).digest()[:size], "big")


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
