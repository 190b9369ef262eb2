"""Metrics as OpenMetrics text (openmetrics.io, version 1.0.0), named by OpenTelemetry's compatibility rules.

Dots become underscores, the unit is a suffix, counters end in `_total`. An exemplar links a bucket to a trace.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    Sum,
)

_UNITS = {"s": "seconds", "By": "bytes", "1": "ratio"}
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def exposition(data: MetricsData) -> str:
    """Return all collected metrics as text, ordered by name."""
    lines: list[str] = []
    for group in data.resource_metrics:
        lines += ["# TYPE target info", f"target_info{_labels(group.resource.attributes)} 1"]
        metrics = {metric_name(m.name, m.unit or ""): m for scope in group.scope_metrics for m in scope.metrics}
        for name, metric in sorted(metrics.items()):
            lines += _family(name, metric)
    return "\n".join([*lines, "# EOF", ""])


def metric_name(name: str, unit: str) -> str:
    """Return the family's name in Prometheus, without suffixes such as `_total` that depend on the kind of metric."""
    plain = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    suffix = _UNITS.get(unit, "")
    return plain if not suffix or plain.endswith(suffix) else f"{plain}_{suffix}"


def _family(name: str, metric: Metric) -> Iterator[str]:
    match metric.data:
        case Histogram(data_points=histograms):
            yield from _header(name, "histogram", metric)
            for histogram in histograms:
                yield from _histogram(name, histogram)
        case Sum(data_points=counts, is_monotonic=True):
            yield from _header(name, "counter", metric)
            yield from _numbers(f"{name}_total", counts)
        case Sum(data_points=values) | Gauge(data_points=values):
            yield from _header(name, "gauge", metric)
            yield from _numbers(name, values)


def _numbers(name: str, points: Iterable[NumberDataPoint]) -> Iterator[str]:
    for point in points:
        yield f"{name}{_labels(point.attributes)} {_number(point.value)}"


def _header(name: str, kind: str, metric: Metric) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    if metric.description:
        yield f"# HELP {name} {metric.description.translate(_ESCAPES)}"


def _histogram(name: str, point: HistogramDataPoint) -> Iterator[str]:
    exemplars = _by_bucket(point.explicit_bounds, point.exemplars)
    total = 0
    for number, (bound, count) in enumerate(zip((*point.explicit_bounds, math.inf), point.bucket_counts, strict=True)):
        total += count
        labels = _labels(point.attributes, le=_number(float(bound)))
        yield f"{name}_bucket{labels} {total}{exemplars.get(number, '')}"
    yield f"{name}_count{_labels(point.attributes)} {point.count}"
    yield f"{name}_sum{_labels(point.attributes)} {_number(point.sum)}"


def _by_bucket(bounds: Sequence[float], exemplars: Sequence[Exemplar]) -> dict[int, str]:
    """Return the latest exemplar of each bucket that has one, as text by the bucket's index."""
    found: dict[int, str] = {}
    for exemplar in sorted(exemplars, key=lambda exemplar: exemplar.time_unix_nano):
        if exemplar.trace_id:
            bucket = sum(exemplar.value > bound for bound in bounds)
            trace = f'{{trace_id="{exemplar.trace_id:032x}",span_id="{exemplar.span_id:016x}"}}'
            found[bucket] = f" # {trace} {_number(exemplar.value)} {exemplar.time_unix_nano / 1e9:.3f}"
    return found


def _labels(attributes: Mapping[str, Any] | None, **more: str) -> str:
    named = {re.sub(r"[^a-zA-Z0-9_]", "_", key): str(value) for key, value in sorted((attributes or {}).items())}
    pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in {**named, **more}.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
