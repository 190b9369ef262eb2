from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.redis_server import RedisServer
from throttler import lease_script as script
from throttler.core.expectations import Expectations, ExpectationSubject
from throttler.core.profiles import AppProfile, Expectation, Profiles
from throttler.redis_expectations import LEARNED, exchange

PROFILES = Profiles(
    apps={"agent": AppProfile(per_minute=1, max_calls=9, expected=Expectation(output=100))}, reference_tokens=100
)
SUBJECT = ExpectationSubject("t", "agent", 0)


@pytest.mark.parametrize(
    "view",
    [
        b'[["agent", 0, 1.0, 3]]',
        b'[["t", "agent", 0, NaN, 3]]',
        b'[["t", "agent", 0, 150, 0]]',
        b'[["t", "agent", 0, 150, 1e400]]',
        b'[["t", ["agent"], 0, "150", 1]]',
        b'{"agent": 150}',
        b"150",
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
async def test_expectations_that_cannot_be_read_count_as_nothing(tmp_path: Path, view: bytes) -> None:
    server, expectations, other = RedisServer(tmp_path), Expectations(PROFILES), Expectations(PROFILES)
    server.client.zadd(script.GATEWAYS, {b"a": 1, b"b": 1, b"strange": 1, b"\xff": 1})
    server.client.set(LEARNED + "strange", view)
    other.observed(SUBJECT, "u", Expectation(output=150))
    async with Redis.from_url(server.url) as redis:
        await exchange(redis, "b", other)
        await exchange(redis, "a", expectations)
    assert expectations.norm(SUBJECT) == 1.5, "what the other one has seen"
    server.kill()


async def test_gateways_learn_from_each_other(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    gateways = {name: Expectations(PROFILES) for name in "abc"}
    server.client.zadd(script.GATEWAYS, dict.fromkeys(gateways, 1))
    for client in range(5):
        gateways["a"].observed(SUBJECT, f"u{client}", Expectation(output=150))
    gateways["b"].observed(SUBJECT, "v", Expectation(output=80))
    async with Redis.from_url(server.url) as redis:
        for _ in range(2):
            for name, expectations in gateways.items():
                await exchange(redis, name, expectations)
    assert [expectations.norm(SUBJECT) for expectations in gateways.values()] == [1.5, 1.5, 1.5]
    server.kill()
