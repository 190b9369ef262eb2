"""Spans in the application's own trace, made with OpenTelemetry's API, which the extra `tracing` installs."""

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    KEEPS_TRACES = False
else:
    KEEPS_TRACES = True


class InteractionSpan:
    """The span of one interaction, a child of the application's current span."""

    def __init__(self, interaction: str, app: str) -> None:
        self._span: trace.Span | None = None
        if KEEPS_TRACES:
            attributes = {"gen_ai.conversation.id": interaction, "fairlead.app": app}
            self._span = trace.get_tracer("fairlead").start_span("interaction", attributes=attributes)

    @property
    def traceparent(self) -> str:
        """The span as a W3C traceparent header; empty without OpenTelemetry."""
        return "" if self._span is None else _traceparent(self._span)

    def end(self) -> None:
        """End the span at the current time."""
        if self._span is not None:
            self._span.end()


def current_traceparent() -> str:
    """Return the application's current span as a W3C traceparent header; empty without a span."""
    return _traceparent(trace.get_current_span()) if KEEPS_TRACES else ""


def _traceparent(span: "trace.Span") -> str:
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(span))
    return carrier.get("traceparent", "")
