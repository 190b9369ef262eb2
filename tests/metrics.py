"""Metrics as Prometheus sees them, and as the code declares them."""

import re
import urllib.request
from typing import Any

from opentelemetry.metrics import NoOpMeter

from endpoint_picker.app import make_picker
from endpoint_picker.config import PickerConfig
from endpoint_picker.core.service_counters import ServiceCounters
from endpoint_picker.engine_poll import EnginePoll
from endpoint_picker.metrics import observe_picker
from fairlead.v1 import scheduler_pb2
from gateway.accounting import Accounting
from gateway.metrics import CallMetrics, observe_interactions, observe_placements, observe_states
from gateway.upstream.placements import PlacementReason
from global_scheduler.app import make_service
from global_scheduler.config import SchedulerConfig
from global_scheduler.leadership import SoleLeadership
from global_scheduler.metrics import SchedulerMetrics
from local_worker.metrics import WorkerMetrics
from serving.endpoint_names import EndpointNames
from serving.telemetry.exposition import metric_name
from throttler.metrics import RateLimitMetrics, observe_sharing
from throttler.store import LocalStore

SAMPLE = re.compile(r"^(\w+)(?:\{(.*?)\})? (\S+)(?: # .*)?$", re.MULTILINE)


def scrape(port: int) -> tuple[str, str]:
    """Content type and text of a service's endpoint."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        return response.headers["Content-Type"], response.read().decode()


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Every sample by name: labels and value."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for name, labels, value in SAMPLE.findall(text):
        found.setdefault(name, []).append((dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)))
    return found


class DeclaringMeter(NoOpMeter):
    """Remembers what is declared."""

    def __init__(self) -> None:
        super().__init__("test")
        self.names: set[str] = set()

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Any:
        self.names.add(f"{metric_name(name, unit)}_total")
        return super().create_counter(name, unit, description)

    def create_gauge(self, name: str, unit: str = "", description: str = "") -> Any:
        self.names.add(metric_name(name, unit))
        return super().create_gauge(name, unit, description)

    def create_observable_counter(self, name: str, callbacks: Any = None, unit: str = "", description: str = "") -> Any:
        self.names.add(f"{metric_name(name, unit)}_total")
        return super().create_observable_counter(name, callbacks, unit, description)

    def create_observable_gauge(self, name: str, callbacks: Any = None, unit: str = "", description: str = "") -> Any:
        self.names.add(metric_name(name, unit))
        return super().create_observable_gauge(name, callbacks, unit, description)

    def create_histogram(self, name: str, unit: str = "", description: str = "", **advisory: Any) -> Any:
        self.names |= {f"{metric_name(name, unit)}_{part}" for part in ("bucket", "count", "sum")}
        return super().create_histogram(name, unit, description, **advisory)


def declared() -> set[str]:
    """The name of every sample that a service of ours can expose."""
    meter = DeclaringMeter()
    CallMetrics(meter)
    observe_placements(meter, dict.fromkeys(PlacementReason, 0))
    observe_states(meter, lambda: 0, lambda: 0, lambda: 0)
    observe_interactions(meter, Accounting())
    observe_sharing(meter, LocalStore())
    RateLimitMetrics(meter)
    SchedulerMetrics(meter, make_service(SchedulerConfig(secret="a secret for tests only")))
    picker = make_picker(PickerConfig(endpoints="127.0.0.1:1"), ServiceCounters())
    observe_picker(
        meter,
        picker,
        EndpointNames(["127.0.0.1:1"]),
        SoleLeadership(),
        EnginePoll(picker),
        None,
        None,
    )
    WorkerMetrics(meter, [scheduler_pb2.ModelInfo()], lambda: None)
    return meter.names
