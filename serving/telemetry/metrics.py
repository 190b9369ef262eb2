"""A process's metrics: OpenTelemetry instruments that Prometheus scrapes, or that are pushed over OTLP."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from opentelemetry.metrics import Meter, MeterProvider, NoOpMeterProvider

from serving.telemetry.scrape import ScrapeServer

if TYPE_CHECKING:
    from serving.telemetry.metric_readers import MetricReaders

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
FLUSH_SECONDS = 2.0  # in which a collector must take what remains when a process ends


class Metrics:
    """The metrics of one process; `meter` makes instruments, which cost nothing if there is no reader.

    `listen` is the address of the Prometheus endpoint, empty for none. The standard OTEL_* variables configure pushing.
    `instance` is the id of this process in other services, so that its metrics can be joined with the spans that a
    gateway exports for it; if it is empty, OpenTelemetry's own id is used.
    """

    def __init__(self, service: str, listen: str, environ: Mapping[str, str], instance: str = "") -> None:
        self._readers = _readers(service, instance, bool(listen), _push_endpoint(environ))
        self._server = ScrapeServer(listen, self._readers.expose) if self._readers and listen else None
        provider: MeterProvider = self._readers.provider if self._readers else NoOpMeterProvider()
        self.meter: Meter = provider.get_meter("fairlead")

    @property
    def are_read(self) -> bool:
        """Whether the metrics have a reader, so that measuring has a purpose."""
        return self._readers is not None

    async def start(self) -> None:
        """Start the Prometheus endpoint; raise ConfigError if it cannot listen on its address."""
        if self._server is not None:
            await self._server.start()

    @property
    def port(self) -> int | None:
        """The port of the Prometheus endpoint; None if there is no endpoint."""
        return self._server.port if self._server is not None else None

    async def shutdown(self) -> None:
        """Stop the endpoint and push the remaining measurements within FLUSH_SECONDS."""
        if self._server is not None:
            await self._server.stop()
        if self._readers is not None:
            await asyncio.to_thread(self._readers.provider.shutdown, FLUSH_SECONDS * 1000)


def _readers(service: str, instance: str, scraped: bool, endpoint: str) -> "MetricReaders | None":
    if not scraped and not endpoint:
        return None
    from serving.telemetry.metric_readers import MetricReaders

    return MetricReaders(service, instance, scraped, endpoint)


def _push_endpoint(environ: Mapping[str, str]) -> str:
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or environ.get("OTEL_METRICS_EXPORTER", "otlp") == "none":
        return ""
    return next((environ[name] for name in _ENDPOINTS if environ.get(name)), "")
