"""Fixtures for all tests: service processes that are never left behind."""

import gc
import signal
from collections.abc import Iterator
from concurrent import futures
from importlib.util import find_spec
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, Phase, settings
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_rpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as rpc

from tests.otlp import MetricsReceiver, Receiver
from tests.parallel import pytest_addoption, pytest_runtestloop  # noqa: F401 - hooks
from tests.seed import pytest_configure, pytest_sessionstart, pytest_terminal_summary  # noqa: F401 - hooks
from tests.services import SECRET, Process, StartService

# Python's own threshold, 700 objects, has the collector take a fifth of the time of collecting the tests, a third where
# they are compiled first, and a twelfth of the time of running those that compute. It stays where vLLM is installed: a
# collection that finds one of vLLM's ZeroMQ contexts together with a socket of it has been seen to wait for ever.
if find_spec("vllm") is None:
    gc.set_threshold(20_000, 20, 20)

# How fast an example runs says something about the machine and its other load, nothing about the code.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
# `make mutate` asks whether a test fails, not for the simplest example.
settings.register_profile(
    "mutation", settings.get_profile("any-machine"), database=None, phases=[Phase.explicit, Phase.generate]
)

# Fixtures that start services: tests that use them are marked `e2e`, and need not say so themselves.
STARTING_SERVICES = {
    "start_service", "stack", "pair", "cluster", "gateway", "shared", "shared_channel", "exposed", "attacked", "served",
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before the first fixture starts a process
def pytest_runtest_setup() -> None:
    """Begin each test with Python's own handlers of SIGINT and SIGTERM.

    A command that an earlier test ran in this process may have left handlers of its own. A shell that started the run
    in the background has it ignore SIGINT, which every process inherits from the one that starts it.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Spare every later collection of cycles a look at what stays: modules, torch's among them, and the tests."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start services."""
    for item in items:
        if isinstance(item, pytest.Function) and STARTING_SERVICES.intersection(item.fixturenames):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[StartService]:
    """`start_service("gateway", throttle="none")` starts a service on a free port."""
    started: list[Process] = []

    def start(module: str, **settings: object) -> Process:
        log = tmp_path / f"{len(started)}-{module}.log"
        started.append(Process(module, log, {"listen": "127.0.0.1:0", "secret": SECRET, **settings}))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def metrics_receiver() -> MetricsReceiver:
    return MetricsReceiver()


@pytest.fixture
def endpoint(receiver: Receiver, metrics_receiver: MetricsReceiver) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    rpc.add_TraceServiceServicer_to_server(receiver, server)
    metrics_rpc.add_MetricsServiceServicer_to_server(metrics_receiver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop(None).wait()
