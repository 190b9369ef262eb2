"""Which traces are kept: the newest in memory, and of those what is exported.

Decided after each call's end, so that an interaction with a throttled, failed or slow call is always exported, whole as
far as this gateway saw it; of the others a fixed part, the same at every gateway. A call that is not exported costs one
entry in a bounded table.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from fairlead.outcomes import Outcome
from serving.telemetry.records import CallRecord, InteractionRecord
from serving.telemetry.spans import call_spans, interaction_span, parent, trace_id

MOST_CALLS = 64  # remembered per interaction
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_WHOLE = 1 << 64


@dataclass(frozen=True, slots=True)
class TailSampler:
    """What is exported of the traces that nothing is wrong with, and what counts as slow."""

    ratio: float = 1.0
    slow_seconds: float = 30.0

    def is_remarkable(self, call: CallRecord) -> bool:
        """Whether the call's trace has to be kept."""
        return call.outcome is not Outcome.COMPLETED or call.seconds >= self.slow_seconds

    def is_chosen(self, call: CallRecord) -> bool:
        """By the caller's decision where it made one; else by the trace's id."""
        above = parent(call)
        if above is not None and above.is_remote:
            return above.trace_flags.sampled
        return self.chooses(trace_id(call))

    def chooses(self, trace: int) -> bool:
        """As TraceIdRatioBased does: the same at every gateway."""
        return trace % _WHOLE < round(self.ratio * _WHOLE)


@dataclass(slots=True)
class InteractionTrace:
    """One interaction's calls here, oldest first; the last `held` of them are not exported."""

    calls: deque[CallRecord] = field(default_factory=lambda: deque(maxlen=MOST_CALLS))
    held: int = 0
    kept: bool = False
    rooted: bool = False  # its interaction's span is exported: what comes later joins it


class Traces:
    """The newest `most` traces. Without a processor nothing is exported."""

    def __init__(
        self,
        processor: SpanProcessor | None = None,
        keep: TailSampler = TailSampler(),
        most: int = 1000,
    ) -> None:
        self._processor = processor
        self._keep = keep
        self._most = most
        self._traces: OrderedDict[tuple[str, str, str], InteractionTrace] = OrderedDict()

    def call(self, call: CallRecord) -> None:
        """A call has ended. Those of nobody known are not remembered: anybody can make as many as he likes."""
        if not call.client:
            return
        trace = self._traces.setdefault(call.trace_name, InteractionTrace())
        self._traces.move_to_end(call.trace_name)
        if len(self._traces) > self._most:
            self._traces.popitem(last=False)
        trace.calls.append(call)
        if self._processor is None:
            return
        trace.held = min(trace.held + 1, MOST_CALLS)
        trace.kept = trace.kept or self._keep.is_remarkable(call) or self._keep.is_chosen(call)
        if trace.kept:
            self._export(trace, self._processor)

    def interaction(self, interaction: InteractionRecord) -> None:
        """An interaction whose root span is ours has closed. Where a late call opened it again, its root is there."""
        if self._processor is None:
            return
        span = interaction_span(interaction)
        trace = self._traces.get(interaction.trace_name)
        if trace is not None and trace.rooted:
            return
        kept = trace.kept if trace is not None else self._keep.chooses(span.context.trace_id)
        if kept:
            self._processor.on_end(span)
        if trace is not None:
            trace.rooted = kept

    def find(self, name: str) -> list[CallRecord]:
        """The remembered calls of interactions with this id, and calls whose id, ours or the caller's, it is.

        Callers choose interactions' ids and their own: whoever uses another's adds to what is found and hides nothing.
        The calls of one trace are together, oldest first.
        """
        calls = ((key, call) for (_, _, key), trace in self._traces.items() for call in trace.calls)
        return [call for key, call in calls if name in (key, call.request_id, call.caller_request_id)]

    def shutdown(self) -> None:
        """Export what is left, and stop; blocks as long as the exporter's time-out allows."""
        if self._processor is not None:
            self._processor.shutdown()

    def _export(self, trace: InteractionTrace, processor: SpanProcessor) -> None:
        for call in list(trace.calls)[-trace.held :]:
            for span in call_spans(call):
                processor.on_end(span)
        trace.held = 0


def otlp_processor(environ: Mapping[str, str]) -> SpanProcessor | None:
    """OTLP/gRPC as the standard OTEL_* variables say; None unless an endpoint is set.

    `environ` decides whether to export; the SDK reads the exporter's details from the process's environment.
    """
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    endpoint = next((environ[name] for name in _ENDPOINTS if environ.get(name)), "")
    if disabled or not endpoint:
        return None
    # Several hundred calls a second for as long as a slow collector takes; the SDK's own default holds 300 calls.
    queue = int(environ.get("OTEL_BSP_MAX_QUEUE_SIZE", 1 << 16))
    return BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint), max_queue_size=queue)
