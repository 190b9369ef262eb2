"""The OpenMetrics text says what was measured, and a request that is none of ours is answered."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from serving.config import ConfigError
from serving.telemetry.exposition import metric_name
from serving.telemetry.metrics import OTHER, CappedLabel, Metrics
from serving.telemetry.scrape import MOST_CONNECTIONS
from tests.metrics import samples, scrape


@pytest.fixture
async def metrics() -> AsyncIterator[Metrics]:
    made = Metrics("a-service", "127.0.0.1:0", {})
    await made.start()
    yield made
    await made.shutdown()


async def read(metrics: Metrics) -> str:
    assert metrics.port is not None
    kind, text = await asyncio.to_thread(scrape, metrics.port)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    return text


async def ask(metrics: Metrics, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", metrics.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_counters_gauges_and_labels(metrics: Metrics) -> None:
    metrics.meter.create_counter("a.calls", description="Calls\nthat ended").add(2, {"app.name": 'say "hi"\\'})
    metrics.meter.create_gauge("a.queue", "s").set(1.5)
    metrics.meter.create_gauge("a.kv.used", "1").set(0.25)
    text = await read(metrics)
    assert "# TYPE a_calls counter\n# HELP a_calls Calls\\nthat ended\n" in text
    assert 'a_calls_total{app_name="say \\"hi\\"\\\\"} 2\n' in text
    assert "# TYPE a_queue_seconds gauge\na_queue_seconds 1.5\n" in text
    assert "a_kv_used_ratio 0.25\n" in text
    assert samples(text)["target_info"][0][0]["service_name"] == "a-service"


async def test_histograms_are_cumulative(metrics: Metrics) -> None:
    histogram = metrics.meter.create_histogram("a.time", "s", explicit_bucket_boundaries_advisory=(0.1, 1.0))
    for value in (0.05, 0.5, 0.7, 9.0):
        histogram.record(value)
    found = samples(await read(metrics))
    assert [(labels["le"], value) for labels, value in found["a_time_seconds_bucket"]] == [
        ("0.1", 1), ("1.0", 3), ("+Inf", 4),
    ]  # fmt: skip
    assert found["a_time_seconds_count"] == [({}, 4)]
    assert found["a_time_seconds_sum"][0][1] == pytest.approx(10.25)


async def test_an_exemplar_names_the_trace_behind_a_bucket(metrics: Metrics) -> None:
    histogram = metrics.meter.create_histogram("a.time", "s", explicit_bucket_boundaries_advisory=(0.1, 1.0))
    context = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    histogram.record(0.5, context=trace.set_span_in_context(NonRecordingSpan(context)))
    [line] = [line for line in (await read(metrics)).splitlines() if "trace_id" in line]
    assert line.startswith('a_time_seconds_bucket{le="1.0"} 1 # {trace_id="')
    assert f'trace_id="{0xABC:032x}",span_id="{0xDEF:016x}"}} 0.5 ' in line


async def test_instruments_cost_nothing_when_nobody_reads() -> None:
    silent = Metrics("a-service", "", {"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1"})
    await silent.start()
    assert silent.port is None
    assert not silent.are_read
    assert type(silent.meter.create_counter("a")).__name__ == "NoOpCounter"
    await silent.shutdown()


async def test_an_address_that_cannot_be_had_is_a_configuration_error(metrics: Metrics) -> None:
    for listen in (f"127.0.0.1:{metrics.port}", "nonsense"):
        with pytest.raises(ConfigError, match="metrics: cannot listen on"):
            await Metrics("another", listen, {}).start()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"200"),
    ],
)
async def test_other_requests_are_answered(metrics: Metrics, request_bytes: bytes, status: bytes) -> None:
    assert (await ask(metrics, request_bytes)).split(b" ")[1] == status


@pytest.mark.parametrize("request_bytes", [b"x" * 100_000 + b"\r\n\r\n", b"\r\n\r\n"])
async def test_nonsense_does_not_hurt(metrics: Metrics, request_bytes: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        await ask(metrics, request_bytes)
    await read(metrics)


async def test_of_too_many_connections_the_oldest_goes(metrics: Metrics) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", metrics.port) for _ in range(MOST_CONNECTIONS)]
    await read(metrics)
    with contextlib.suppress(ConnectionError):
        assert await idle[0][0].read() == b""
    idle[1][1].write(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert (await idle[1][0].read()).startswith(b"HTTP/1.1 200"), "another one stays"
    for _, writer in idle:
        writer.close()


def test_a_unit_is_said_once() -> None:
    assert metric_name("a.time.seconds", "s") == "a_time_seconds"
    assert metric_name("gen_ai.server.time_to_first_token", "s") == "gen_ai_server_time_to_first_token_seconds"


def test_labels_that_others_choose_are_capped() -> None:
    label = CappedLabel(2)
    assert [label.value(name) for name in ("a", "b", "a", "c", "b")] == ["a", "b", "a", OTHER, "b"]
