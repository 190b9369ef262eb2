"""Services load what costs much time to load only where their configuration needs it."""

import subprocess
import sys

import pytest

# Redis' client, OpenTelemetry's SDK and its exporters take a third of the processor time of a service's start.
DEAR = ("redis", "opentelemetry.sdk.metrics", "opentelemetry.exporter")
PROGRAM = """
import importlib, sys
importlib.import_module(sys.argv[1])
print(*sys.modules)
"""


@pytest.mark.parametrize("service", ["gateway", "global_scheduler", "local_worker", "throttler"])
def test_a_service_starts_without_what_only_redis_and_metrics_need(service: str) -> None:
    command = [sys.executable, "-c", PROGRAM, f"{service}.app"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert f"{service}.config" in loaded
    assert [module for module in loaded if module in DEAR] == []
