"""The application's own trace, where it has one."""

from opentelemetry import trace
from opentelemetry.trace import Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TRACER = trace.get_tracer("fairlead")
_propagator = TraceContextTextMapPropagator()


def traceparent(span: Span) -> str:
    """`span` as a W3C header; empty without a trace."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, trace.set_span_in_context(span))
    return carrier.get("traceparent", "")


def current_traceparent() -> str:
    """The application's current span as a W3C header; empty without one."""
    return traceparent(trace.get_current_span())
