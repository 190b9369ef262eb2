"""Metrics of the endpoint picker, read at each collection."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from endpoint_picker.adapter_reports import AdapterReports
from endpoint_picker.endpoint_source import EndpointSource
from endpoint_picker.engine_poll import EnginePoll
from endpoint_picker.picker import Picker
from global_scheduler.leadership import Leadership

if TYPE_CHECKING:
    from endpoint_picker.shared_counters import SharedCounters


class PickerMetrics:
    """Counts requests by what became of them, and shows what the picker has now."""

    def __init__(
        self,
        meter: Meter,
        picker: Picker,
        source: EndpointSource,
        leadership: Leadership,
        poll: EnginePoll | None,
        adapters: AdapterReports | None,
        sharing: "SharedCounters | None",
    ) -> None:
        self._picker = picker
        self._source = source
        self._leadership = leadership
        self._poll = poll
        self._adapters = adapters
        self._sharing = sharing
        meter.create_observable_counter(
            "fairlead.picker.requests", [self._requests], description="Requests that were placed or refused, by outcome"
        )
        meter.create_observable_counter(
            "fairlead.picker.outputs", [self._outputs], description="Outputs whose tokens were told, or estimated"
        )
        gauge = meter.create_observable_gauge
        gauge("fairlead.picker.waiting", [self._waiting], description="Requests that wait for room at an endpoint")
        gauge("fairlead.picker.endpoints", [self._endpoints], description="Endpoints of the pool")
        gauge(
            "fairlead.picker.epoch", [self._epoch], description="Epoch in which the picker leads; 0 while it stands by"
        )
        gauge(
            "fairlead.picker.accounts_shared",
            [self._are_shared],
            description="1 while the accounts of clients are kept in common with other pickers, else 0",
        )
        gauge(
            "fairlead.picker.queues",
            [self._queues],
            description="Endpoints by where their queue is known from: metrics, or what was placed there",
        )
        gauge("fairlead.picker.adapters", [self._attached], description="Endpoints whose adapters are attached")
        gauge(
            "fairlead.picker.prefixes",
            [self._prefixes],
            description="Endpoints by where their cached prefixes are known from: events, or assumed",
        )
        gauge(
            "fairlead.picker.endpoints_current",
            [self._is_current],
            description="1 while changes of the endpoints become known, else 0",
        )

    def _requests(self, _: CallbackOptions) -> Iterable[Observation]:
        # A copy: the exporter's thread may run this.
        return [Observation(count, {"outcome": outcome}) for outcome, count in list(self._picker.outcomes.items())]

    def _outputs(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(count, {"source": source}) for source, count in list(self._picker.outputs.items())]

    def _waiting(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(self._picker.waiting)]

    def _endpoints(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(len(self._picker.pool.endpoints))]

    def _epoch(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(self._leadership.epoch)]

    def _are_shared(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(int(self._sharing is not None and self._sharing.is_current))]

    def _queues(self, _: CallbackOptions) -> Iterable[Observation]:
        answering = self._poll.answering if self._poll else 0
        counts = {"metrics": answering, "placed": len(self._picker.pool.endpoints) - answering}
        return [Observation(count, {"source": source}) for source, count in counts.items()]

    def _attached(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(self._adapters.attached if self._adapters else 0)]

    def _prefixes(self, _: CallbackOptions) -> Iterable[Observation]:
        pool = self._picker.pool
        endpoints = pool.endpoints
        reporting = sum(map(pool.reports_blocks, endpoints))
        counts = {"events": reporting, "assumed": len(endpoints) - reporting}
        return [Observation(count, {"source": source}) for source, count in counts.items()]

    def _is_current(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(int(self._source.is_current))]
