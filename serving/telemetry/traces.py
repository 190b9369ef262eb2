"""Tail sampling: the newest traces stay in memory, and some of them are exported.

The decision is made after the end of each call. An interaction with a throttled, failed or slow call is always
exported, with all its calls at this gateway. Of the other interactions a fixed part is exported, the same at every
gateway. A call that is not exported costs one entry in a bounded table.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from opentelemetry.sdk.trace import SpanProcessor

from fairlead.outcomes import Outcome
from serving.telemetry.metrics import FLUSH_SECONDS
from serving.telemetry.records import CallRecord, InteractionRecord
from serving.telemetry.spans import call_spans, interaction_span, parent, trace_id

MOST_CALLS = 64  # calls that are remembered per interaction
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_WHOLE = 1 << 64


@dataclass(frozen=True, slots=True)
class TailSampler:
    """The rule that selects traces for export.

    `ratio` is the part of unremarkable traces that is exported; a call that takes `slow_seconds` or more is remarkable.
    """

    ratio: float = 1.0
    slow_seconds: float = 30.0

    def is_remarkable(self, call: CallRecord) -> bool:
        """Return whether the call did not complete or was slow, so that its trace has to be exported."""
        return call.outcome is not Outcome.COMPLETED or call.seconds >= self.slow_seconds

    def is_chosen(self, call: CallRecord) -> bool:
        """Return the sampling decision of the caller if it made one, otherwise the decision by the trace's id."""
        above = parent(call)
        if above is not None and above.is_remote:
            return above.trace_flags.sampled
        return self.chooses(trace_id(call))

    def chooses(self, trace: int) -> bool:
        """Return whether `trace` is sampled; every gateway decides the same, as OpenTelemetry's TraceIdRatioBased."""
        return trace % _WHOLE < round(self.ratio * _WHOLE)


@dataclass(slots=True)
class InteractionTrace:
    """The calls of one interaction at this gateway, oldest first; the last `held` of them are not yet exported."""

    calls: deque[CallRecord] = field(default_factory=partial(deque, maxlen=MOST_CALLS))
    held: int = 0
    kept: bool = False
    rooted: bool = False  # the interaction's span is exported and must not be exported again


class Traces:
    """The newest `most` traces, in memory; without a processor nothing is exported."""

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
        """Record a call that has ended. Unauthenticated calls are ignored: their number has no limit."""
        if not call.client:
            return
        name = call.client, call.app, call.interaction or call.request_id  # other calls have a trace each
        trace = self._traces.setdefault(name, InteractionTrace())
        self._traces.move_to_end(name)
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
        """Record the end of an interaction whose root span is ours.

        The root span is not exported again if a late call had opened the interaction again.
        """
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
        """Return the remembered calls of interactions with the id `name`, and calls with this id, ours or the caller's.

        Callers choose ids of interactions and of calls. A caller that uses another's id adds calls to the result, but
        cannot hide any. The calls of one trace are together, oldest first.
        """
        calls = ((key, call) for (_, _, key), trace in self._traces.items() for call in trace.calls)
        return [call for key, call in calls if name in (key, call.request_id, call.caller_request_id)]

    def newest(self) -> Iterator[CallRecord]:
        """Yield the last call of each remembered trace, the trace with the newest call first."""
        return (trace.calls[-1] for trace in reversed(self._traces.values()))

    def of_client(self, client: str, most: int) -> list[CallRecord]:
        """Return the calls of the newest `most` traces of `client`, those of one trace together, oldest first."""
        traces = (trace for (owner, _, _), trace in reversed(self._traces.items()) if owner == client)
        return [call for trace in islice(traces, most) for call in trace.calls]

    def shutdown(self) -> None:
        """Export the remaining spans and stop; block for at most FLUSH_SECONDS."""
        if self._processor is not None:
            self._processor.shutdown()

    def _export(self, trace: InteractionTrace, processor: SpanProcessor) -> None:
        for call in list(trace.calls)[-trace.held :]:
            for span in call_spans(call):
                processor.on_end(span)
        trace.held = 0


def otlp_processor(environ: Mapping[str, str]) -> SpanProcessor | None:
    """Return an OTLP/gRPC exporter configured by the standard OTEL_* variables; None unless an endpoint is set.

    `environ` decides whether to export; the SDK reads the exporter's details from the process's environment.
    """
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    endpoint = next((environ[name] for name in _ENDPOINTS if environ.get(name)), "")
    if disabled or not endpoint:
        return None
    # A process without an endpoint does not need it, and starts faster without it.
    from serving.telemetry.span_export import SpanExport

    # Enough for several hundred calls per second while a collector is slow; the SDK's own default holds 300 calls.
    queue = int(environ.get("OTEL_BSP_MAX_QUEUE_SIZE", 1 << 16))
    return SpanExport(endpoint, queue, FLUSH_SECONDS)
