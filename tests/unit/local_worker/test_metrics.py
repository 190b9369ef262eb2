"""Totals of the load become counters, each counted once, and pages gauges of tenants that are there."""

import asyncio
import contextlib
from collections.abc import Iterable

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from fairlead.v1 import scheduler_pb2
from local_worker import metrics
from local_worker.metrics import WorkerMetrics


def told(reader: InMemoryMetricReader, name: str, *labels: str) -> dict[object, float]:
    """Return the metric's values by those of `labels`."""
    data = reader.get_metrics_data()
    assert data is not None
    found = [each for resource in data.resource_metrics for scope in resource.scope_metrics for each in scope.metrics]
    [metric] = [each for each in found if each.name == name]
    points = [point for point in metric.data.data_points if isinstance(point, NumberDataPoint)]
    return {tuple((point.attributes or {})[label] for label in labels): point.value for point in points}


async def metered(monkeypatch: pytest.MonkeyPatch, loads: Iterable[scheduler_pb2.Load]) -> InMemoryMetricReader:
    """Return a reader of the metrics after each of `loads` was the current one."""
    monkeypatch.setattr(metrics, "STATE_SECONDS", 0)
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    worker = scheduler_pb2.ModelInfo(name="tiny", kv_tokens=64, max_running=4)
    rest = iter(loads)

    def current() -> scheduler_pb2.Load:
        if (load := next(rest, None)) is None:
            raise asyncio.CancelledError
        return load

    with contextlib.suppress(asyncio.CancelledError):
        await WorkerMetrics(meter, [worker], lambda: None).run(current)
    return reader


async def test_who_gave_way_is_counted_once_though_each_load_tells_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = [
        scheduler_pb2.Load(preemptions=preempted, paused_decodes=paused, deferred_preemptions=deferred)
        for preempted, paused, deferred in ((1, 10, 0), (1, 30, 0), (3, 30, 2))
    ]
    reader = await metered(monkeypatch, loads)
    found = told(reader, "fairlead.worker.yields", "kind")
    assert found == {("preempted",): 3, ("paused",): 30, ("deferred",): 2}


def load_of(shares: dict[str, int], evicted: dict[tuple[str, str], int]) -> scheduler_pb2.Load:
    load = scheduler_pb2.Load()
    for name, pages in shares.items():
        load.tenant_pages.add(name=name, pages=pages, part=8)
    for (taker, owner), pages in evicted.items():
        load.evicted_pages.add(taker=taker, owner=owner, pages=pages)
    return load


async def test_pages_are_those_of_tenants_that_are_there_and_evictions_are_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "MOST_TENANTS", 2)
    loads = [
        load_of({"a": 6, "b": 2}, {("a", "b"): 3}),
        load_of({"b": 4, "c": 1, "d": 2, "": 7}, {("a", "b"): 5, ("", ""): 2}),
    ]
    reader = await metered(monkeypatch, loads)
    held = told(reader, "fairlead.worker.tenant.pages", "tenant", "kind")
    assert held == {
        ("a", "held"): 0,
        ("a", "part"): 0,
        ("b", "held"): 4,
        ("b", "part"): 8,
        ("other", "held"): 10,
        ("other", "part"): 24,
    }
    evicted = told(reader, "fairlead.worker.evicted.pages", "taker", "owner")
    assert evicted == {("a", "b"): 5, ("other", "other"): 2}
