"""A process's metrics: OpenTelemetry instruments that Prometheus scrapes, or that are pushed over OTLP."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, NoOpMeterProvider, Observation

from serving.telemetry.scrape import ScrapeServer

if TYPE_CHECKING:
    from serving.telemetry.metric_readers import MetricReaders

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
FLUSH_SECONDS = 2.0  # in which a collector must take what remains when a process ends
OTHER = "other"  # the value of a label that has too many


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


def observe(create: Callable[..., object], name: str, read: Callable[[], float], description: str) -> None:
    """Make an instrument without labels by a meter's method; `read` is called at each collection, on any thread."""
    create(name, [lambda _: [Observation(read())]], description=description)


def observe_by(
    create: Callable[..., object], name: str, label: str, read: Callable[[], Mapping[str, float]], description: str
) -> None:
    """Make an instrument with a label, whose values are the keys of what `read` returns; see `observe`."""
    # A copy: the exporter's thread may run this.
    create(
        name,
        [lambda _: [Observation(each, {label: key}) for key, each in list(read().items())]],
        description=description,
    )


class Counter:
    """A counter with the given labels, whose totals the SDK reads at each collection.

    The SDK's own counter copies, cleans and sorts the attributes of each measurement, which takes tens of times as long
    as an addition to a total.
    """

    def __init__(self, meter: Meter, name: str, labels: Sequence[str], description: str) -> None:
        self._labels = tuple(labels)
        self._totals: dict[tuple[str, ...], float] = {}
        meter.create_observable_counter(name, [self._observe], description=description)

    def add(self, amount: float, *values: str) -> None:
        """Add `amount`, at least 0, to the total of these values of the labels, in the labels' order."""
        self._totals[values] = self._totals.get(values, 0) + amount

    def _observe(self, _: CallbackOptions) -> list[Observation]:
        totals = list(self._totals.items())  # a copy: the exporter's thread may run this
        return [Observation(total, dict(zip(self._labels, values, strict=True))) for values, total in totals]


class CappedLabel:
    """A label that keeps its first `most` distinct values and replaces later ones by `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()  # never iterated: its order is not deterministic

    def value(self, given: str) -> str:
        """Return the label's value for `given`."""
        if given not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(given)
        return given
