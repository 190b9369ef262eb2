"""A cluster with API keys, for strangers to attack."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import Process, Stack

KEY = "the key of an honest tenant"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """With one worker."""
    stack = Stack(tmp_path)
    stack.worker("a")
    yield stack
    stack.close()


def gateway_of(stack: Stack, directory: Path) -> Process:
    """One that serves holders of KEY only."""
    keys = directory / "keys.yaml"
    keys.write_text(f"keys:\n  - {{hash: {hashlib.sha256(KEY.encode()).hexdigest()}, tenant: honest}}\n")
    gateway = stack.start("gateway", scheduler=stack.addresses, keys=keys, throttle="none")
    gateway.wait_for("ready")
    return gateway


@pytest.fixture
def gateway(stack: Stack) -> Process:
    """Of this test's own."""
    return gateway_of(stack, stack.directory)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """With one worker, for tests that leave it as it was."""
    stack = Stack(tmp_path_factory.mktemp("stack"))
    stack.worker("a")
    yield stack
    stack.close()


@pytest.fixture(scope="module")
def shared_gateway(shared: Stack) -> Process:
    """For tests that leave it as it was."""
    return gateway_of(shared, shared.directory)
