"""Spans that are pushed over OTLP in batches. Only a process with an endpoint imports this module."""

import threading

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor


class SpanExport(BatchSpanProcessor):
    """Exports spans to the collector at `endpoint`; at most `queue` of them wait.

    `shutdown` blocks for at most `flush_seconds`: the SDK would wait for a silent collector as long as for any export.
    """

    def __init__(self, endpoint: str, queue: int, flush_seconds: float) -> None:
        self._exporter = OTLPSpanExporter(endpoint=endpoint)
        self._flush_seconds = flush_seconds
        super().__init__(self._exporter, max_queue_size=queue)

    def shutdown(self) -> None:
        """Export the remaining spans; those that the collector has not taken in time are lost."""
        giving_up = threading.Timer(self._flush_seconds, self._exporter.shutdown)
        giving_up.daemon = True
        giving_up.start()
        super().shutdown()  # type: ignore[no-untyped-call]
        giving_up.cancel()
