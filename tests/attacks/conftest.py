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


@pytest.fixture
def gateway(stack: Stack, tmp_path: Path) -> Process:
    """That serves holders of KEY only."""
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"keys:\n  - {{hash: {hashlib.sha256(KEY.encode()).hexdigest()}, tenant: honest}}\n")
    gateway = stack.start("gateway", scheduler=stack.addresses, keys=keys, throttle="none")
    gateway.wait_for("ready")
    return gateway


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """With one worker, for tests that leave it as it was."""
    stack = Stack(tmp_path_factory.mktemp("stack"))
    stack.worker("a")
    yield stack
    stack.close()
