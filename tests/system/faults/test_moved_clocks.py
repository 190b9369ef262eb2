"""The clocks of all services are set at once, an hour or a year ahead or back: only times that are shown change."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redis_server import RedisServer
from tests.services import Process, Stack
from tests.system.faults.load import Load, assert_all_completed
from tests.system.faults.moved_clock import MOVED, move
from tests.unit.gateway.http.http_client import RESPONSES, HttpClient
from tests.unit.throttler.rate_limit_client import client_of

HOUR, YEAR = 3600, 365 * 86_400
PER_MINUTE = 3
CALLS = 8


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the seconds by which the clocks of services are moved that start from now on."""
    file = tmp_path / "clock"
    move(file, 0)
    monkeypatch.setenv(MOVED, str(file))
    return file


@pytest.fixture
def moved(clock: Path, tmp_path: Path, redis: RedisServer) -> Iterator[Stack]:
    """Two schedulers, of which one leads, and a worker, with clocks that can be moved."""
    stack = Stack(tmp_path, imports="tests.system.faults.moved_clock", redis=redis.url)
    stack.scheduler.wait_for("leads")
    stack.schedulers.append(stack.start("global_scheduler", redis=redis.url))
    stack.worker("a", engine="fake:0.005")
    yield stack
    stack.close()


def admitted(limiter: Process, user: str) -> int:
    """How many of some calls of a user are within the limit."""
    with client_of(limiter) as client:
        return [client.admits(user=user) for _ in range(PER_MINUTE + 2)].count(True)


def created(http: HttpClient) -> int:
    """When a gateway has made a response, by its clock."""
    return int(http.post(RESPONSES, {"input": "hello", "max_output_tokens": 4}).json["created_at"])


def test_clocks_that_are_set_disturb_no_call_no_limit_and_no_lead(
    moved: Stack, clock: Path, redis: RedisServer
) -> None:
    gateway = moved.gateway(http_listen="127.0.0.1:0", throttle="oit:10000", redis=redis.url)
    limiter = moved.start("throttler", throttle=f"oit:{PER_MINUTE}")
    http = HttpClient(gateway.wait_for("listening")["http_port"])
    stored = http.post(RESPONSES, {"input": "hello", "max_output_tokens": 4}).json["id"]
    assert admitted(limiter, "ann") == PER_MINUTE
    with Load(gateway.address, threads=3, max_tokens=20) as load:
        for seconds in (HOUR, -HOUR, YEAR, -YEAR):
            load.more(CALLS)
            move(clock, seconds)
            assert abs(created(http) - time.time() - seconds) < HOUR / 2, "the clock is moved"
            load.more(CALLS)
            assert http.get(f"{RESPONSES}/{stored}").status == 200
            assert admitted(limiter, "ann") == 0, "the minute has not passed"
            assert admitted(limiter, f"user {seconds}") == PER_MINUTE
    assert_all_completed(load)
    assert len(moved.scheduler.logged("leads")) == 1
    assert not moved.schedulers[1].logged("leads")
    for process in (gateway, limiter, *moved.schedulers, *moved.workers.values()):
        assert "Traceback" not in process.log
    assert all(0 <= line["seconds"] < HOUR / 2 for line in gateway.logged("call ended"))
