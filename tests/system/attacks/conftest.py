"""A cluster with API keys, for strangers to attack."""

import hashlib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from tests.services import Process, Stack
from tests.system.attacks.report import Report
from tests.system.attacks.sizes import Sizes

KEY = "the key of an honest tenant"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attacks")
    for size in fields(Sizes):
        group.addoption(f"--{size.name}", type=int, default=size.default)
    group.addoption("--report", type=Path, help="where the table of what was attacked is written")


@pytest.fixture(scope="session")
def sizes(pytestconfig: pytest.Config) -> Sizes:
    # The options are not known where more than the attacks is run.
    return Sizes(**{size.name: pytestconfig.getoption(size.name, size.default) for size in fields(Sizes)})


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> Iterator[Report]:
    report = Report()
    yield report
    path = pytestconfig.getoption("report", None)
    if path is not None:
        report.write(path)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """With one worker."""
    stack = Stack(tmp_path)
    stack.worker("a")
    yield stack
    stack.close()


def gateway_of(stack: Stack, directory: Path, **settings: object) -> Process:
    """One that serves holders of KEY only."""
    keys = directory / "keys.yaml"
    keys.write_text(f"keys:\n  - {{hash: {hashlib.sha256(KEY.encode()).hexdigest()}, tenant: honest}}\n")
    gateway = stack.start("gateway", scheduler=stack.addresses, keys=keys, throttle="none", **settings)
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
