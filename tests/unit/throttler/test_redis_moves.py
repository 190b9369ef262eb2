"""Behind a fixed address another Redis becomes the master: each user of Redis leaves the connections to the former."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from endpoint_picker.core.service_counters import ServiceCounters
from endpoint_picker.shared_counters import SharedCounters
from gateway.core.seen_calls import SeenCall
from gateway.shared_interactions import CHANNEL, SharedInteractions
from global_scheduler.leader_lease import LeaderLease
from serving.redis_access import open_redis
from tests.moving_address import MovingAddress
from tests.ports import free_ports
from tests.redis_server import RedisServer
from tests.unit.throttler.shared import on_redis, until
from tests.unit.throttler.test_redis_faults import ANSWER_SECONDS, PROFILES, SECONDS, degraded, shared
from throttler import lease_script as script
from throttler import redis_expectations
from throttler.core.expectations import Expectations
from throttler.redis_ledger import RedisLedger


class Pair:
    """A master, its replica, and the address at which clients look for the master."""

    def __init__(self, directory: Path) -> None:
        self.sockets = [directory / name / "redis.sock" for name in ("one", "two")]
        for path in self.sockets:
            path.parent.mkdir()
        self.ports = free_ports(2)
        self.servers = [
            RedisServer(path.parent, "--port", str(port), "--repl-diskless-sync-delay", "0")
            for path, port in zip(self.sockets, self.ports, strict=True)
        ]
        self.address = MovingAddress(self.sockets[0])

    async def follow(self, master: int) -> None:
        """Make the other server a replica of `master`, and wait until it is."""
        replica = self.servers[1 - master].client
        replica.replicaof("127.0.0.1", str(self.ports[master]))
        await until(lambda: replica.info()["master_link_status"] == "up", "the replica follows")

    async def fail_over(self) -> None:
        """Promote the replica, demote the master, and lead the address to the new master; no connection breaks."""
        first, second = (server.client for server in self.servers)
        assert first.wait(1, 60_000) == 1, "the replica has it, within so many milliseconds"
        second.replicaof("NO", "ONE")
        await self.follow(1)
        self.address.move(self.sockets[1])


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(tmp_path)
    try:
        await pair.follow(0)
        async with pair.address.serve():
            yield pair
    finally:
        for server in pair.servers:
            server.kill()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.kill()


@contextlib.asynccontextmanager
async def address_of(directory: Path) -> AsyncIterator[MovingAddress]:
    address = MovingAddress(directory / "redis.sock")
    async with address.serve():
        yield address


@contextlib.asynccontextmanager
async def meanwhile(running: asyncio.Task[None]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def subscribers(server: RedisServer) -> int:
    return int(server.client.pubsub_numsub(script.RECALLS)[0][1])


async def test_gateways_share_limits_at_the_new_master(pair: Pair) -> None:
    async with on_redis(pair.address.url, 2, PROFILES, SECONDS) as gateways:
        assert sum([await gateways[0].admits("u") for _ in range(50)]) == 50
        await pair.fail_over()
        await degraded(gateways)
        await shared(gateways)
        assert sum([await gateways[1].admits("u") for _ in range(50)]) <= 10, "the other one's 50 are known"
        await until(lambda: subscribers(pair.servers[1]) == 2, "recalls are received from the new master")


async def test_a_scheduler_holds_its_lease_at_the_new_master(pair: Pair) -> None:
    lease = LeaderLease(open_redis(pair.address.url), "pool", "me", seconds=0.3)
    async with meanwhile(asyncio.create_task(lease.run(lambda: None))):
        await until(lambda: lease.epoch, "it leads")
        await pair.fail_over()
        second = pair.servers[1].client
        second.delete("fairlead:pool:lease")
        await until(lambda: second.get("fairlead:pool:lease") == b"me", "it holds a lease at the new master")
        await until(lambda: lease.epoch == 2, "it knows its epoch")


async def test_pickers_keep_their_accounts_at_the_new_master(pair: Pair) -> None:
    sharing = SharedCounters(open_redis(pair.address.url), "pool", ServiceCounters())
    async with sharing.kept():
        await until(lambda: sharing.is_current, "the picker exchanges")
        await pair.fail_over()
        await until(lambda: not sharing.is_current, "the old master refuses")
        await until(lambda: sharing.is_current, "the picker exchanges with the new master")


async def test_expectations_are_exchanged_at_the_new_master(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_expectations, "EXCHANGE_SECONDS", 0.05)
    key = redis_expectations.LEARNED + "me"
    async with open_redis(pair.address.url) as redis:
        exchange = redis_expectations.exchange_for_ever(redis, "me", Expectations(PROFILES))
        async with meanwhile(asyncio.create_task(exchange)):
            await until(lambda: pair.servers[0].client.get(key), "the gateway exchanges")
            await pair.fail_over()
            pair.servers[1].client.delete(key)
            await until(lambda: pair.servers[1].client.get(key), "the gateway exchanges with the new master")


async def test_interactions_are_shared_at_the_new_master(pair: Pair) -> None:
    learnt = list[SeenCall]()
    calls = [SeenCall("tenant", "app", f"chat {number}", "", "") for number in range(2)]

    def following(server: RedisServer) -> bool:
        return bool(server.client.pubsub_numsub(CHANNEL)[0][1] == 2)

    links = [open_redis(pair.address.url) for _ in range(2)]
    gateways = [SharedInteractions(link) for link in links]
    async with on_redis(pair.address.url, 2, PROFILES, SECONDS, links=links), AsyncExitStack() as tasks:
        for gateway, learn in zip(gateways, (learnt.append, learnt.remove), strict=True):
            await tasks.enter_async_context(meanwhile(asyncio.create_task(gateway.run(learn))))
        await until(lambda: following(pair.servers[0]), "both follow the channel")
        gateways[1].tell(calls[0])
        await until(lambda: learnt == calls[:1], "the other one knows")
        await pair.fail_over()
        await until(lambda: following(pair.servers[1]), "both follow it at the new master")

        def known() -> bool:
            gateways[1].tell(calls[1])  # again: before the next heartbeat it may reach the former master, and nobody
            return calls[1] in learnt

        await until(known, "the other one knows")


@pytest.mark.parametrize(
    "error",
    [
        b"READONLY You can't write against a read only replica.",
        b"LOADING Redis is loading the dataset in memory",
        b"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        b"CLUSTERDOWN The cluster is down",
        b"NOREPLICAS Not enough good replicas to write.",
        b"MISCONF Redis is configured to save RDB snapshots",
        b"NOAUTH Authentication required.",
        b"ERR proxy: the upstream failed",
        b"",
    ],
)
async def test_whatever_a_former_server_answers_its_connections_are_left(
    redis: RedisServer, tmp_path: Path, error: bytes
) -> None:
    async with (
        address_of(tmp_path) as address,
        on_redis(address.url, 1, PROFILES, SECONDS, answer_seconds=ANSWER_SECONDS) as gateways,
    ):
        address.answer(error)
        await degraded(gateways)
        await shared(gateways)


async def test_a_half_open_subscription_is_left(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        address_of(tmp_path) as address,
        on_redis(address.url, 1, PROFILES, SECONDS, answer_seconds=ANSWER_SECONDS) as gateways,
    ):
        await until(lambda: subscribers(redis) == 1, "it has subscribed")
        [former] = redis.client.client_list(_type="pubsub")
        assert address.mute(b"SUBSCRIBE") == 1
        await until(
            lambda: [each["id"] for each in redis.client.client_list(_type="pubsub")] not in ([], [former["id"]]),
            "it has subscribed anew",
        )
        assert not gateways[0].store.degraded


async def test_a_half_open_subscription_to_recalls_of_budgets_is_left(redis: RedisServer, tmp_path: Path) -> None:
    def subscriptions() -> list[str]:
        return [each["id"] for each in redis.client.client_list(_type="pubsub")]

    async with address_of(tmp_path) as address, open_redis(address.url) as link:
        recalled: list[str] = []
        async with meanwhile(asyncio.create_task(RedisLedger(link).listen(recalled.append))):
            await until(lambda: len(subscriptions()) == 1, "it has subscribed")
            [former] = subscriptions()
            assert address.mute(b"SUBSCRIBE") == 1
            await until(lambda: subscriptions() not in ([], [former]), "it has subscribed anew")
