"""No service waits for an OTLP collector that answers nothing when it ends."""

import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from fairlead import Client
from tests.services import Stack, eventually

EXPORTS = (
    ("opentelemetry.proto.collector.trace.v1.TraceService", "traces"),
    ("opentelemetry.proto.collector.metrics.v1.MetricsService", "metrics"),
)
PATIENCE = 25  # seconds that an exporter gives the collector by itself; below it, the SDK waits at its end


class SilentCollector:
    """Takes exports and never answers; `given_up` has the kind of each that was broken off before its deadline."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.given_up: list[str] = []
        self._end = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(16))
        for service, kind in EXPORTS:
            handler = grpc.unary_unary_rpc_method_handler(self._export(kind))
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": handler}),))
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _export(self, kind: str) -> object:
        def export(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.asked.append(kind)
            context.add_callback(lambda: self._ended(kind, context.time_remaining()))
            self._end.wait()
            return b""

        return export

    def _ended(self, kind: str, remaining: float | None) -> None:
        if remaining:
            self.given_up.append(kind)

    def close(self) -> None:
        self._end.set()
        self._server.stop(None).wait()


@pytest.fixture
def collector() -> Iterator[SilentCollector]:
    collector = SilentCollector()
    yield collector
    collector.close()


async def test_every_service_gives_up(
    tmp_path: Path, collector: SilentCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", str(PATIENCE))
    stack = Stack(tmp_path)
    try:
        stack.worker("w0")
        gateway = stack.gateway()
        async with Client(gateway.address, user="ann") as client:
            await client.generate("x", max_tokens=1)
        services = [
            gateway,
            stack.workers["w0"],
            stack.scheduler,
            stack.start("throttler"),
            stack.start("endpoint_picker", endpoints="127.0.0.1:1"),
        ]
        assert all(service.address for service in services), "they have begun to serve"
        for service in services:
            service.begin_terminate()
        assert [service.wait() for service in services] == [0] * len(services)
    finally:
        stack.close()
    eventually(lambda: len(collector.given_up) == len(services) + 1, "the gateway gave up its spans and its metrics")
    assert sorted(collector.given_up) == sorted(collector.asked) == ["metrics"] * len(services) + ["traces"]
