"""Fixtures for all tests: service processes that are never left behind."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.services import SECRET, ServiceProcess, StartService


@pytest.fixture
def start_service() -> Iterator[StartService]:
    """`start_service("gateway", "--flag", "value")` starts a service on a free port and waits until it listens."""
    started: list[ServiceProcess] = []
    readers: list[threading.Thread] = []

    def start(module: str, *args: str, listen: str = "127.0.0.1:0") -> ServiceProcess:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--listen", listen, *args],
            stderr=subprocess.PIPE,
            text=True,
            env=environment | {"FAIRLEAD_SECRET": SECRET},
        )
        service = ServiceProcess(module, process)
        started.append(service)
        readers.append(threading.Thread(target=service.read_log, daemon=True))
        readers[-1].start()
        service.port = service.wait_for("listening")["port"]
        return service

    yield start
    for service in started:
        if service.process.poll() is None:
            service.kill()
    for reader in readers:
        reader.join()
    for service in started:
        assert service.process.stderr is not None
        service.process.stderr.close()
