"""One conformance suite over shared limits: a ledger in memory, and a real Redis; 1, 2 and 4 gateways."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.redis_server import RedisServer
from tests.unit.throttler.shared import Gateway, in_memory, on_redis, until
from throttler.core.decider import Arrival
from throttler.core.profiles import Profiles, RateLimits
from throttler.core.throttle import Caller
from throttler.lease_script import ACCOUNT

Share = Callable[[int, Profiles, float], AbstractAsyncContextManager[list[Gateway]]]
USER = Profiles(limits=RateLimits(user_per_minute=60, app_per_minute=1_000_000, kappa=2))
APP = Profiles(limits=RateLimits(user_per_minute=1_000_000, app_per_minute=60))
LONG = 3600.0  # seconds, which no test takes


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.kill()


@pytest.fixture(params=["memory", "redis"])
def share(request: pytest.FixtureRequest, redis: RedisServer) -> Share:
    """`share(count, profiles, seconds)`: gateways that share limits."""

    @contextlib.asynccontextmanager
    async def memory(count: int, profiles: Profiles, seconds: float) -> AsyncIterator[list[Gateway]]:
        yield in_memory(count, profiles, seconds, time.monotonic)

    @contextlib.asynccontextmanager
    async def shared(count: int, profiles: Profiles, seconds: float) -> AsyncIterator[list[Gateway]]:
        redis.client.flushall()
        async with on_redis(redis.url, count, profiles, seconds) as gateways:
            yield gateways

    return memory if request.param == "memory" else shared


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("profiles", [USER, APP], ids=["user", "app"])
async def test_a_limit_is_one_limit_however_many_gateways_there_are(
    share: Share, count: int, profiles: Profiles
) -> None:
    async with share(count, profiles, LONG) as gateways:
        admitted = 0
        for number in range(240):
            admitted += await gateways[number % count].admits()
        assert admitted == 60


@pytest.mark.parametrize("count", [2, 4])
async def test_one_gateway_gets_all_of_it_when_the_others_have_no_traffic(share: Share, count: int) -> None:
    async with share(count, USER, LONG) as gateways:
        assert sum([await gateways[0].admits() for _ in range(100)]) == 60
        assert not await gateways[1].admits()


async def test_capacity_that_one_gateway_does_not_use_goes_to_another(share: Share) -> None:
    async with share(2, USER, LONG) as gateways:
        first = sum([await gateways[0].admits() for _ in range(30)])
        second = sum([await gateways[1].admits() for _ in range(60)])
        assert first == 30
        assert 27 <= second <= 30, "but for what the first keeps so as not to need it again at once"


async def test_a_burst_at_all_gateways_at_once(share: Share) -> None:
    async with share(4, USER, LONG) as gateways:
        burst = [gateways[0 if number % 10 < 7 else number % 4].admits() for number in range(1200)]
        assert sum(await asyncio.gather(*burst)) == 60


async def test_users_and_apps_are_counted_apart(share: Share) -> None:
    async with share(2, Profiles(limits=RateLimits(user_per_minute=10, app_per_minute=15)), LONG) as gateways:
        assert sum([await gateways[n % 2].admits("u", "a") for n in range(30)]) == 10
        assert sum([await gateways[n % 2].admits("v", "a") for n in range(30)]) == 5
        assert sum([await gateways[n % 2].admits("w", "b") for n in range(30)]) == 10


@pytest.mark.parametrize("count", [1, 4])
async def test_protected_calls_have_one_cap_too(share: Share, count: int) -> None:
    async with share(count, USER, LONG) as gateways:
        admitted = [await gateways[n % count].admits(protected=True) for n in range(300)]
        assert sum(admitted) == 120, "kappa * T_user, however many gateways a token is replayed at"


async def test_a_token_replayed_at_every_gateway_gains_no_more_than_the_cap(share: Share) -> None:
    profiles = Profiles(limits=RateLimits(user_per_minute=10, app_per_minute=1_000_000, kappa=2, max_calls=30))
    async with share(4, profiles, LONG) as gateways:
        first = Arrival(Caller("t", "u", "a"), "endless", overloaded=True)
        opened = await gateways[0].permit(first)
        assert opened is not None
        again, protected = first._replace(token=opened.token), 0
        for _ in range(29):  # at each of four gateways, since max_calls starts anew at each
            permits = [await gateway.permit(again) for gateway in gateways]
            protected += sum(permit is not None and permit.protected for permit in permits)
        assert protected == 20


async def test_without_overload_nobody_waits_and_all_is_counted(share: Share) -> None:
    async with share(2, USER, LONG) as gateways:
        assert all([await gateways[0].admits(overloaded=False) for _ in range(200)])
        assert not await gateways[0].admits()


async def test_without_overload_calls_count_towards_their_app_whatever_is_held_of_their_users_limits(
    share: Share,
) -> None:
    async with share(2, Profiles(limits=RateLimits(user_per_minute=10, app_per_minute=15)), LONG) as gateways:
        assert all([await gateways[0].admits(f"u{number}", overloaded=False) for number in range(15)])
        assert not await gateways[0].admits("another")


@pytest.mark.parametrize(("pause", "again"), [(LONG - 1, 0), (LONG, 60)])
async def test_the_limit_is_there_again_after_a_window_and_no_earlier(pause: float, again: int) -> None:
    now = 1000.0
    gateways = in_memory(2, USER, LONG, lambda: now)
    for expected in (60, again):
        assert sum([await gateways[number % 2].admits() for number in range(70)]) == expected
        now += pause


async def test_redis_forgets_an_account_whose_windows_have_passed_and_its_limit_is_there_again(
    redis: RedisServer,
) -> None:
    redis.client.flushall()
    few = Profiles(limits=RateLimits(user_per_minute=6, app_per_minute=1_000_000))
    async with on_redis(redis.url, 2, few, 1.0) as gateways:
        while await gateways[0].admits():
            pass
        assert redis.client.keys(ACCOUNT + "*")
        await until(lambda: not redis.client.keys(ACCOUNT + "*"), "the account is forgotten")
        assert await gateways[1].admits()


CALLS_OF_TENANTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("uvw"), st.sampled_from("xy"), st.integers(0, 1))
)
TENANTS = Profiles(limits=RateLimits(user_per_minute=8, app_per_minute=12))
Call = tuple[str, str, str, int]  # tenant, user, app, gateway


async def made(gateways: list[Gateway], calls: list[Call]) -> list[bool]:
    return [await gateways[at].admits(f"{tenant}/{user}", app, tenant=tenant) for tenant, user, app, at in calls]


@given(calls=CALLS_OF_TENANTS)
async def test_leases_serve_a_tenant_as_if_there_were_no_other(calls: list[Call]) -> None:
    together, alone = (in_memory(2, TENANTS, LONG, lambda: 0.0) for _ in range(2))
    admitted = await made(together, calls)
    of_a = [number for number, call in enumerate(calls) if call[0] == "a"]
    assert await made(alone, [calls[number] for number in of_a]) == [admitted[number] for number in of_a]


TENANT = Profiles(limits=RateLimits(user_per_minute=8, app_per_minute=1_000_000, tenant_per_minute=12, kappa=2))


@pytest.mark.parametrize("protected", [False, True])
async def test_the_users_of_a_tenant_share_its_limit_at_all_gateways(share: Share, protected: bool) -> None:
    most = 24 if protected else 12
    async with share(2, TENANT, LONG) as gateways:
        flood = [
            await gateways[number % 2].admits(f"a/{number % 20}", tenant="a", protected=protected)
            for number in range(2 * most)
        ]
        assert sum(flood) == most
        assert await gateways[0].admits("b/1", tenant="b", protected=protected)


@settings(max_examples=10, deadline=None)
@given(others=st.lists(st.tuples(st.sampled_from("bcd"), st.sampled_from("uvw"), st.just("x"), st.integers(0, 1))))
async def test_on_redis_too_no_tenant_spends_anothers_part_of_an_app(redis: RedisServer, others: list[Call]) -> None:
    redis.client.flushall()
    flood: list[Call] = [("b", f"user {number}", "x", number % 2) for number in range(24)]
    async with on_redis(redis.url, 2, TENANTS, LONG) as gateways:
        assert sum(await made(gateways, flood)) == 12, "all that one tenant may have of the app"
        await made(gateways, others)
        mine: list[Call] = [("a", user, "x", 0) for user in "uv" for _ in range(6)]
        assert await made(gateways, mine) == [True] * 12
        assert await made(gateways, [("a", "w", "x", 0)]) == [False]
