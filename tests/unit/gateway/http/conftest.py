"""Gateways that speak HTTP."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.services import Process, Stack
from tests.unit.gateway.http.http_client import HttpClient

Serve = Callable[..., tuple[Process, HttpClient]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("http").addoption("--requests", type=int, default=300, help="how many the fuzzer sends")


def serving(stack: Stack, **settings: object) -> tuple[Process, HttpClient]:
    """Start a gateway that answers HTTP, and wait until it knows every worker."""
    gateway = stack.gateway(http_listen="127.0.0.1:0", **settings)
    return gateway, HttpClient(gateway.wait_for("listening")["http_port"])


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A cluster of one worker, for tests that leave it as it was."""
    stack = Stack(tmp_path_factory.mktemp("stack"))
    stack.worker("a", model="tiny", kv_tokens=2048)
    yield stack
    stack.close()


@pytest.fixture(scope="module")
def shared(shared_stack: Stack) -> tuple[Process, HttpClient]:
    """A gateway without keys, for tests that leave it as it was."""
    return serving(shared_stack, throttle="none", request_seconds=1, reader_seconds=2)


@pytest.fixture(scope="module")
def http(shared: tuple[Process, HttpClient]) -> HttpClient:
    """A client of `shared`."""
    return shared[1]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A cluster of this test's own, with nothing but a scheduler yet."""
    stack = Stack(tmp_path)
    yield stack
    stack.close()


@pytest.fixture
def http_with_keys(stack: Stack, tmp_path: Path) -> HttpClient:
    """A client of a gateway with three keys: `backend` may name users, `plain` not, `other` is another tenant's."""
    keys = tmp_path / "keys.yaml"
    entries = {"backend": "tenant: acme, names_users: true", "plain": "tenant: acme", "other": "tenant: umbrella"}
    hashes = {key: hashlib.sha256(key.encode()).hexdigest() for key in entries}
    keys.write_text("keys:\n" + "".join(f"  - {{hash: {hashes[key]}, {entry}}}\n" for key, entry in entries.items()))
    stack.worker("a")
    gateway = stack.start("gateway", scheduler=stack.addresses, keys=keys, http_listen="127.0.0.1:0")
    gateway.wait_for("ready")
    return HttpClient(gateway.wait_for("listening")["http_port"])
