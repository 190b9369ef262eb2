"""The cheap counter is collected as the SDK's own would be."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum

from serving.telemetry.metrics import Counter

ADDED = [(1, "a", "x"), (2.5, "a", "y"), (4, "b", "x"), (8, "a", "x"), (0, "c", "x")]


def collected(reader: InMemoryMetricReader) -> tuple[object, ...]:
    data = reader.get_metrics_data()
    if data is None:
        return ()
    [metric] = data.resource_metrics[0].scope_metrics[0].metrics
    assert isinstance(metric.data, Sum)
    points = [(dict(point.attributes or {}), point.value) for point in metric.data.data_points]
    described = metric.name, metric.unit, metric.description, metric.data.is_monotonic
    return (*described, metric.data.aggregation_temporality, sorted(points, key=str))


def test_totals_are_collected_as_those_of_the_sdks_counter() -> None:
    ours, theirs = InMemoryMetricReader(), InMemoryMetricReader()
    counter = Counter(MeterProvider([ours]).get_meter("test"), "calls", ("app", "kind"), "Calls that ended")
    reference = MeterProvider([theirs]).get_meter("test").create_counter("calls", description="Calls that ended")
    assert collected(ours) == collected(theirs) == ()
    for _ in range(2):
        for amount, app, kind in ADDED:
            counter.add(amount, app, kind)
            reference.add(amount, {"app": app, "kind": kind})
        assert collected(ours) == collected(theirs)
        assert len(collected(ours)) == 6
