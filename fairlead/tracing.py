"""The application's own trace, where it keeps one: with OpenTelemetry's API, which the extra `tracing` installs."""

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    KEEPS_TRACES = False
else:
    KEEPS_TRACES = True


class InteractionSpan:
    """The span of one interaction, a child of what the application is doing when it is made."""

    def __init__(self, interaction: str, app: str) -> None:
        self._span: trace.Span | None = None
        if KEEPS_TRACES:
            attributes = {"gen_ai.conversation.id": interaction, "fairlead.app": app}
            self._span = trace.get_tracer("fairlead").start_span("interaction", attributes=attributes)

    @property
    def traceparent(self) -> str:
        """The span as a W3C header; empty without a trace."""
        return "" if self._span is None else _traceparent(self._span)

    def end(self) -> None:
        """The interaction is over now."""
        if self._span is not None:
            self._span.end()


def current_traceparent() -> str:
    """The application's current span as a W3C header; empty without one."""
    return _traceparent(trace.get_current_span()) if KEEPS_TRACES else ""


def _traceparent(span: "trace.Span") -> str:
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(span))
    return carrier.get("traceparent", "")
