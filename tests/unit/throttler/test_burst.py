"""Four gateway processes, skewed ingress, a burst of twenty times the limit: not one call too many."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.redis_server import RedisServer
from tests.services import DEADLINE

SHARES = (70, 15, 10, 5)  # percent of the burst


@pytest.mark.e2e
@pytest.mark.parametrize(("limit", "commands_per_call"), [(60, 0.38), (600, 0.05)])
def test_a_burst_of_twenty_times_the_limit(tmp_path: Path, limit: int, commands_per_call: float) -> None:
    redis, calls = RedisServer(tmp_path), 20 * limit
    command = [sys.executable, "-m", "tests.unit.throttler.burst", redis.url, str(limit)]
    gateways = [
        subprocess.Popen(
            [*command, str(calls * share // 100)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for share in SHARES
    ]
    try:
        for gateway in gateways:
            assert gateway.stdout is not None
            assert gateway.stdout.readline() == "ready\n"
        for gateway in gateways:
            tell(gateway)
        lines = [gateway.stdout.readline().split() for gateway in gateways if gateway.stdout is not None]
        for gateway in gateways:
            tell(gateway)
            assert gateway.wait(DEADLINE) == 0
    finally:
        for gateway in gateways:
            gateway.kill()
            gateway.communicate()
        redis.kill()
    assert [line[2] for line in lines] == ["False"] * 4, "Redis was there all the time"
    admitted, commands = sum(int(line[0]) for line in lines), sum(int(line[1]) for line in lines)
    assert admitted <= limit
    # Which gateway asks for the last arrivals depends on the operating system's scheduler: when the burst ends, each of
    # the other gateways may still hold one arrival that it was leased.
    assert limit - admitted < len(SHARES), "refused wrongly"
    assert commands <= commands_per_call * calls


def tell(gateway: subprocess.Popen[str]) -> None:
    assert gateway.stdin is not None
    gateway.stdin.write("\n")
    gateway.stdin.flush()
