"""Clusters to be broken."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redis_server import RedisServer
from tests.services import Stack


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.resume()
    server.kill()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """With one scheduler and nothing else yet."""
    stack = Stack(tmp_path)
    yield stack
    stack.close()


@pytest.fixture
def pair(tmp_path: Path, redis: RedisServer) -> Iterator[Stack]:
    """With a scheduler that leads and one that stands by, of different policies, as while an update changes the
    default."""
    stack = Stack(tmp_path, redis=redis.url, policy="doubleq")
    stack.scheduler.wait_for("leads")
    stack.schedulers.append(stack.start("global_scheduler", redis=redis.url))
    yield stack
    stack.close()
