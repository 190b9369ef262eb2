"""A process's metrics: OpenTelemetry instruments that Prometheus scrapes, or that are pushed over OTLP."""

import asyncio
from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Meter, MeterProvider, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricReader, PeriodicExportingMetricReader

from serving.telemetry.exposition import exposition
from serving.telemetry.resources import resource
from serving.telemetry.scrape import ScrapeServer

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Metrics:
    """The metrics of one process; `meter` makes instruments, which cost nothing if there is no reader.

    `listen` is the address of the Prometheus endpoint, empty for none. The standard OTEL_* variables configure pushing.
    `instance` is the id of this process in other services, so that its metrics can be joined with the spans that a
    gateway exports for it; if it is empty, OpenTelemetry's own id is used.
    """

    def __init__(self, service: str, listen: str, environ: Mapping[str, str], instance: str = "") -> None:
        self._scraped = InMemoryMetricReader() if listen else None
        self._server = ScrapeServer(listen, self._expose) if listen else None
        readers: list[MetricReader] = [self._scraped] if self._scraped else []
        if endpoint := _push_endpoint(environ):
            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint)))
        process = resource(service, instance)
        self._sdk = SdkMeterProvider(readers, process, shutdown_on_exit=False) if readers else None
        provider: MeterProvider = self._sdk or NoOpMeterProvider()
        self.meter: Meter = provider.get_meter("fairlead")

    @property
    def are_read(self) -> bool:
        """Whether the metrics have a reader, so that measuring has a purpose."""
        return self._sdk is not None

    async def start(self) -> None:
        """Start the Prometheus endpoint; raise ConfigError if it cannot listen on its address."""
        if self._server is not None:
            await self._server.start()

    @property
    def port(self) -> int | None:
        """The port of the Prometheus endpoint; None if there is no endpoint."""
        return self._server.port if self._server is not None else None

    async def shutdown(self) -> None:
        """Stop the endpoint and push the remaining measurements."""
        if self._server is not None:
            await self._server.stop()
        if self._sdk is not None:
            await asyncio.to_thread(self._sdk.shutdown)

    def _expose(self) -> str:
        assert self._scraped is not None, "the server is started only with its reader"
        data = self._scraped.get_metrics_data()
        return exposition(data) if data is not None else "# EOF\n"


def _push_endpoint(environ: Mapping[str, str]) -> str:
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or environ.get("OTEL_METRICS_EXPORTER", "otlp") == "none":
        return ""
    return next((environ[name] for name in _ENDPOINTS if environ.get(name)), "")
