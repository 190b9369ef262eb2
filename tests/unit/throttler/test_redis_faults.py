"""Redis killed, paused, slow, restarted empty: gateways count by themselves at once, and share again by themselves."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.redis_server import RedisServer
from tests.unit.throttler.shared import Gateway, on_redis, until
from tests.unit.throttler.slow_wire import SlowWire
from throttler import lease_script as script
from throttler.core.profiles import Profiles, RateLimits
from throttler.redis_store import RedisStore

PROFILES = Profiles(limits=RateLimits(user_per_minute=60, app_per_minute=1_000_000))
SECONDS = 3600.0  # of a window: a busy machine takes longer than a minute for some tests
ANSWER_SECONDS = 1.0  # after which Redis is away, where that is what a test is about


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.kill()


async def degraded(gateways: list[Gateway]) -> None:
    await until(lambda: all(gateway.store.degraded for gateway in gateways), "all count by themselves")


async def shared(gateways: list[Gateway]) -> None:
    await until(lambda: not any(gateway.store.degraded for gateway in gateways), "all share again")


def commands(gateway: Gateway) -> int:
    """Sent to Redis so far."""
    assert isinstance(gateway.store, RedisStore)
    return gateway.store.commands


async def admitted(gateways: list[Gateway], client: str, calls: int) -> int:
    burst = [gateways[number % len(gateways)].admits(client) for number in range(calls)]
    return sum(await asyncio.gather(*burst))


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_without_redis_each_gateway_has_its_part_and_asks_in_vain_once(redis: RedisServer, fault: str) -> None:
    async with on_redis(redis.url, 4, PROFILES, SECONDS, answer_seconds=ANSWER_SECONDS) as gateways:
        assert await admitted(gateways, "before", 240) == 60
        getattr(redis, fault)()
        asked = [commands(gateway) for gateway in gateways]
        assert await admitted(gateways, "during", 240) == 60, "limit / R at each"
        await degraded(gateways)
        in_vain = [commands(gateway) - before for gateway, before in zip(gateways, asked, strict=True)]
        # On a slow machine a gateway asks again before the last one counts by itself.
        assert max(in_vain) < 10, "60 calls at each wait for one answer, and no other call for another"
        redis.resume() if fault == "pause" else redis.start()
        await shared(gateways)
        assert await admitted(gateways, "after", 240) == 60
        assert await admitted(gateways, "during", 100) == 0, "what was let through without Redis is not forgotten"


async def test_restarted_empty_between_two_calls(redis: RedisServer) -> None:
    async with on_redis(redis.url, 2, PROFILES, SECONDS) as gateways:
        assert sum([await gateways[0].admits("u") for _ in range(50)]) == 50
        redis.kill()
        redis.start()
        await degraded(gateways)
        await shared(gateways)
        assert sum([await gateways[1].admits("u") for _ in range(50)]) <= 10, "the other one's 50 were reported"


async def test_the_log_says_once_that_redis_is_away_also_at_the_start(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    redis.kill()
    back = asyncio.create_task(start_after(redis, lambda: "counts by itself" in caplog.text))
    async with on_redis(redis.url, 1, PROFILES, SECONDS) as gateways:
        await back
        redis.kill()
        await degraded(gateways)
    assert caplog.text.count("counts by itself") == 2


async def start_after(redis: RedisServer, condition: Callable[[], bool]) -> None:
    await until(condition, "the gateway has missed Redis")
    redis.start()


async def test_recalls_that_cannot_be_read(redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    async with on_redis(redis.url, 2, PROFILES, SECONDS) as gateways:
        await shared(gateways)
        for recall in (b"", b"\xff\xfe 60 user:x", b"a many user:x", b"a " + b"9" * 5000 + b" user:x"):
            redis.client.publish(script.RECALLS, recall)
        await until(lambda: caplog.text.count("a recall cannot be read") >= 6, "all were heard, by both")
        assert await admitted(gateways, "u", 240) == 60


async def test_emptied_while_running(redis: RedisServer) -> None:
    async with on_redis(redis.url, 2, PROFILES, SECONDS) as gateways:
        assert sum([await gateways[0].admits("u") for _ in range(50)]) == 50
        redis.client.flushall()
        await degraded(gateways)
        await shared(gateways)
        assert sum([await gateways[1].admits("u") for _ in range(50)]) <= 10


async def test_failed_over_to_a_replica_at_the_same_address(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    [port] = free_ports(1)
    first = RedisServer(tmp_path / "one", "--port", str(port))
    second = RedisServer(tmp_path / "two", "--replicaof", "127.0.0.1", str(port))
    address = tmp_path / "address.sock"
    address.symlink_to(tmp_path / "one" / "redis.sock")
    try:
        await until(lambda: second.client.info()["master_link_status"] == "up", "the replica follows")
        async with on_redis(f"unix://{address}", 2, PROFILES, SECONDS) as gateways:
            assert sum([await gateways[0].admits("u") for _ in range(50)]) == 50
            assert first.client.wait(1, 60_000) == 1, "the replica has it, within so many milliseconds"
            first.kill()
            await degraded(gateways)
            second.client.replicaof("NO", "ONE")
            address.unlink()
            address.symlink_to(tmp_path / "two" / "redis.sock")
            await shared(gateways)
            assert sum([await gateways[1].admits("u") for _ in range(50)]) <= 10, "the other one's 50 are known"
    finally:
        first.kill()
        second.kill()


async def test_one_too_slow_to_wait_for(redis: RedisServer, tmp_path: Path) -> None:
    wire = SlowWire(tmp_path / "wire.sock", tmp_path / "redis.sock")
    async with (
        wire.serve(),
        on_redis(f"unix://{wire.path}", 2, PROFILES, SECONDS, answer_seconds=ANSWER_SECONDS) as gateways,
    ):
        wire.delay = 2 * ANSWER_SECONDS
        assert await admitted(gateways, "u", 120) == 60, "limit / R at each"
        await degraded(gateways)
        wire.delay = 0.0
        await shared(gateways)
        assert await admitted(gateways, "v", 120) == 60


async def test_a_gateway_that_dies_takes_its_part_with_it_for_two_windows_at_most(redis: RedisServer) -> None:
    async with on_redis(redis.url, 1, PROFILES, 1.0) as [survivor]:
        async with on_redis(redis.url, 1, PROFILES, 1.0, others=1) as [mortal]:
            assert sum([await mortal.admits("u") for _ in range(60)]) == 60
        await until(lambda: survivor.store.gateways == 1, "the other is gone")
        await until(lambda: not redis.client.keys(script.ACCOUNT + "*"), "what it held is forgotten")
        assert sum([await survivor.admits("u") for _ in range(60)]) == 60
