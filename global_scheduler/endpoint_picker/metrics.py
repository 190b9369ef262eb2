"""Metrics of the endpoint picker, read at each collection."""

from collections.abc import Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from global_scheduler.endpoint_picker.picker import Picker


class PickerMetrics:
    """Counts requests by what became of them, and shows what the picker has now."""

    def __init__(self, meter: Meter, picker: Picker) -> None:
        self._picker = picker
        meter.create_observable_counter(
            "fairlead.picker.requests", [self._requests], description="Requests that were placed or refused, by outcome"
        )
        gauge = meter.create_observable_gauge
        gauge("fairlead.picker.waiting", [self._waiting], description="Requests that wait for room at an endpoint")
        gauge("fairlead.picker.endpoints", [self._endpoints], description="Endpoints of the pool")

    def _requests(self, _: CallbackOptions) -> Iterable[Observation]:
        # A copy: the exporter's thread may run this.
        return [Observation(count, {"outcome": outcome}) for outcome, count in list(self._picker.outcomes.items())]

    def _waiting(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(self._picker.waiting)]

    def _endpoints(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(len(self._picker.pool.endpoints))]
