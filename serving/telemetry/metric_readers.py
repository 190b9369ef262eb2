"""The readers of a process's metrics: a scrape, and a push over OTLP.

Only a process whose metrics are read imports this module: without OpenTelemetry's SDK a service starts faster.
"""

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricReader, PeriodicExportingMetricReader

from serving.telemetry.exposition import exposition
from serving.telemetry.resources import resource


class MetricReaders:
    """The SDK's meter provider with its readers: one for `expose` if the metrics are `scraped`, and one that pushes
    them to `endpoint` unless that is empty.

    `service` and `instance` name the process, as in `Metrics`.
    """

    def __init__(self, service: str, instance: str, scraped: bool, endpoint: str) -> None:
        self._scraped = InMemoryMetricReader() if scraped else None
        readers: list[MetricReader] = [self._scraped] if self._scraped else []
        if endpoint:
            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint)))
        self.provider = MeterProvider(readers, resource(service, instance), shutdown_on_exit=False)

    def expose(self) -> str:
        """Return the current metrics as OpenMetrics text."""
        assert self._scraped is not None, "the server is started only with its reader"
        data = self._scraped.get_metrics_data()
        return exposition(data) if data is not None else "# EOF\n"
