from pathlib import Path

from redis.asyncio import Redis

from tests.redis_server import RedisServer
from throttler import lease_script as script
from throttler.core.expectations import Expectations
from throttler.core.profiles import AppProfile, Expectation, Profiles
from throttler.redis_expectations import exchange

PROFILES = Profiles(
    apps={"agent": AppProfile(per_minute=1, max_calls=9, expected=Expectation(output=100))}, reference_tokens=100
)


async def test_gateways_learn_from_each_other(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    gateways = {name: Expectations(PROFILES) for name in "abc"}
    server.client.zadd(script.GATEWAYS, dict.fromkeys(gateways, 1))
    for client in range(5):
        gateways["a"].observed("agent", 0, f"u{client}", Expectation(output=150))
    gateways["b"].observed("agent", 0, "v", Expectation(output=80))
    async with Redis.from_url(server.url) as redis:
        for _ in range(2):
            for name, expectations in gateways.items():
                await exchange(redis, name, expectations)
    assert [expectations.norm("agent", 0) for expectations in gateways.values()] == [1.5, 1.5, 1.5]
    server.kill()
