"""Claims that gateways exchange through a real Redis."""

import asyncio
import time
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.redis_server import RedisServer
from tests.unit.throttler.shared import until
from tests.unit.throttler.test_redis_moves import meanwhile
from throttler import lease_script as script
from throttler import redis_claims
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.pool_claims import PoolClaims
from throttler.redis_claims import CLAIMS, exchange


def holding(tokens: int) -> PoolClaims:
    claims = PoolClaims()
    claims.of("m").admitted(InteractionKey("t/u", "app", str(tokens)), 1.5, tokens, time.monotonic())
    return claims


async def test_gateways_know_each_others_claims_until_they_stop(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    gateways = {"a": holding(100), "b": holding(30), "c": PoolClaims()}
    server.client.zadd(script.GATEWAYS, dict.fromkeys(gateways, 1))
    async with Redis.from_url(server.url) as redis:
        for _ in range(2):
            for name, claims in gateways.items():
                await exchange(redis, name, claims)
        assert [claims.of("m").parts.held for claims in gateways.values()] == [130, 130, 130]
        assert 0 < server.client.pttl(CLAIMS + "a") <= 5000, "of a gateway that stops they are soon forgotten"
        server.client.delete(CLAIMS + "a")
        await exchange(redis, "c", gateways["c"])
    assert gateways["c"].of("m").parts.held == 30
    server.kill()


@pytest.mark.parametrize(
    "view",
    [
        b'{"m": [[[1, "t", 1000000, 0]], []]}',
        b'{"m": [[[1, "t", 0, 5]], []]}',
        b'{"m": [[[1, "t", "1", 5]], []]}',
        b'{"m": [[[1, "t", 1000000]], []]}',
        b'{"m": [[], [["t", -1]]]}',
        b'{"m": [[]]}',
        b"150",
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
async def test_claims_that_cannot_be_read_count_as_nothing(tmp_path: Path, view: bytes) -> None:
    server, claims = RedisServer(tmp_path), holding(100)
    server.client.zadd(script.GATEWAYS, {b"a": 1, b"strange": 1, b"\xff": 1})
    server.client.set(CLAIMS + "strange", view)
    async with Redis.from_url(server.url) as redis:
        await exchange(redis, "a", claims)
    assert claims.of("m").parts.held == 100
    server.kill()


async def test_a_gateway_counts_its_own_claims_alone_while_redis_is_away_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(redis_claims, "EXCHANGE_SECONDS", 0.01)
    server, mine, other = RedisServer(tmp_path), holding(100), holding(30)
    async with Redis.from_url(server.url) as redis, Redis.from_url(server.url) as link:
        server.client.zadd(script.GATEWAYS, {"a": 1, "b": 1})
        exchanging = [redis_claims.exchange_for_ever(*each) for each in ((redis, "a", mine), (link, "b", other))]
        async with meanwhile(asyncio.create_task(exchanging[0])), meanwhile(asyncio.create_task(exchanging[1])):
            await until(lambda: mine.of("m").parts.held == 130, "it knows of the other one")
            server.kill()
            await until(lambda: mine.of("m").parts.held == 100, "it counts its own alone")
            await until(lambda: other.of("m").parts.held == 30, "so does the other one")
            server.start()
            server.client.zadd(script.GATEWAYS, {"a": 1, "b": 1})
            await until(lambda: mine.of("m").parts.held == 130, "it knows of the other one again")
    told = [record for record in caplog.records if record.message == "claims are not exchanged"]
    assert len(told) == 2, "each says it once"
    server.kill()
