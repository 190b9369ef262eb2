"""Metrics of the endpoint picker, read at each collection."""

from typing import TYPE_CHECKING

from opentelemetry.metrics import Meter

from endpoint_picker.adapter_reports import AdapterReports
from endpoint_picker.endpoint_source import EndpointSource
from endpoint_picker.engine_poll import EnginePoll
from endpoint_picker.picker import Picker
from global_scheduler.leadership import Leadership
from serving.telemetry.metrics import observe, observe_by

if TYPE_CHECKING:
    from endpoint_picker.shared_counters import SharedCounters


def observe_picker(
    meter: Meter,
    picker: Picker,
    source: EndpointSource,
    leadership: Leadership,
    poll: EnginePoll,
    adapters: AdapterReports | None,
    sharing: "SharedCounters | None",
) -> None:
    """Count requests by what became of them, and show what the picker has now."""

    def queues() -> dict[str, float]:
        return {"metrics": poll.answering, "placed": len(picker.pool.endpoints) - poll.answering}

    def prefixes() -> dict[str, float]:
        endpoints = picker.pool.endpoints
        reporting = sum(map(picker.pool.reports_blocks, endpoints))
        return {"events": reporting, "assumed": len(endpoints) - reporting}

    gauge, counter, name = meter.create_observable_gauge, meter.create_observable_counter, "fairlead.picker."
    observe_by(
        counter,
        name + "requests",
        "outcome",
        lambda: picker.outcomes,
        "Requests that were placed or refused, by outcome",
    )
    observe_by(
        counter, name + "outputs", "source", lambda: picker.outputs, "Outputs whose tokens were told, or estimated"
    )
    observe(gauge, name + "waiting", lambda: picker.waiting, "Requests that wait for room at an endpoint")
    observe(gauge, name + "endpoints", lambda: len(picker.pool.endpoints), "Endpoints of the pool")
    observe(gauge, name + "epoch", lambda: leadership.epoch, "Epoch in which the picker leads; 0 while it stands by")
    observe(
        gauge,
        name + "accounts_shared",
        lambda: int(sharing is not None and sharing.is_current),
        "1 while the accounts of clients are kept in common with other pickers, else 0",
    )
    observe_by(
        gauge,
        name + "queues",
        "source",
        queues,
        "Endpoints by where their queue is known from: metrics, or what was placed there",
    )
    observe(
        gauge, name + "adapters", lambda: adapters.attached if adapters else 0, "Endpoints whose adapters are attached"
    )
    observe_by(
        gauge,
        name + "prefixes",
        "source",
        prefixes,
        "Endpoints by where their cached prefixes are known from: events, or assumed",
    )
    observe(
        gauge,
        name + "endpoints_current",
        lambda: int(source.is_current),
        "1 while changes of the endpoints become known, else 0",
    )
