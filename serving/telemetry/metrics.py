"""A process's metrics: OpenTelemetry instruments, read by Prometheus, pushed over OTLP, or neither."""

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
    """`meter` makes instruments; they cost nothing when nobody reads them.

    `listen`: address of the Prometheus endpoint, empty for none. The standard OTEL_* variables configure pushing.
    `instance`: by which other services know this process, so that its metrics join the spans that a gateway exports
    for it; empty: OpenTelemetry's own.
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
        """Whether it makes sense to measure at all."""
        return self._sdk is not None

    async def start(self) -> None:
        """Answer Prometheus from now on; raises ConfigError when the address cannot be had."""
        if self._server is not None:
            await self._server.start()

    @property
    def port(self) -> int | None:
        """Of the Prometheus endpoint."""
        return self._server.port if self._server is not None else None

    async def shutdown(self) -> None:
        """Push what is left, and stop."""
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
