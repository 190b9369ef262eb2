"""Totals of the load become counters: each is counted once."""

import asyncio
import contextlib

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from fairlead.v1 import scheduler_pb2
from local_worker import metrics
from local_worker.metrics import WorkerMetrics


def yields(reader: InMemoryMetricReader) -> dict[object, float]:
    data = reader.get_metrics_data()
    assert data is not None
    found = [each for resource in data.resource_metrics for scope in resource.scope_metrics for each in scope.metrics]
    [metric] = [each for each in found if each.name == "fairlead.worker.yields"]
    points = [point for point in metric.data.data_points if isinstance(point, NumberDataPoint)]
    return {(point.attributes or {})["kind"]: point.value for point in points}


async def test_who_gave_way_is_counted_once_though_each_load_tells_totals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "STATE_SECONDS", 0)
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    worker = scheduler_pb2.ModelInfo(name="tiny", kv_tokens=64, max_running=4)
    loads = iter([(1, 10, 0), (1, 30, 0), (3, 30, 2)])

    def current() -> scheduler_pb2.Load:
        if (totals := next(loads, None)) is None:
            raise asyncio.CancelledError
        preempted, paused, deferred = totals
        return scheduler_pb2.Load(preemptions=preempted, paused_decodes=paused, deferred_preemptions=deferred)

    with contextlib.suppress(asyncio.CancelledError):
        await WorkerMetrics(meter, [worker], lambda: None).run(current)
    assert yields(reader) == {"preempted": 3, "paused": 30, "deferred": 2}
