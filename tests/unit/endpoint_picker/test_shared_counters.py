"""The accounts of several pickers of a pool, with a real Redis that is killed, and with real picker processes."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.exceptions import RedisError

from endpoint_picker import shared_counters
from endpoint_picker.core.service_counters import ServiceCounters
from endpoint_picker.shared_counters import SharedCounters
from serving.cost import MICRO
from serving.envoy import ext_proc_pb2_grpc
from serving.redis_access import open_redis
from tests.metrics import samples, scrape
from tests.redis_server import RedisServer
from tests.services import DEADLINE, Process, eventually
from tests.unit.endpoint_picker.stream import Stream

NAMES = ["ann", "bob/a b", "cörol"]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exchange takes as long as this machine's other load lets it."""
    monkeypatch.setattr(shared_counters, "CALL_SECONDS", DEADLINE)


class SharingPicker:
    """The counters of a picker, and what exchanges them, over a connection for each exchange."""

    def __init__(self, redis: RedisServer, name: str = "pool") -> None:
        self.counters = ServiceCounters()
        self._redis = open_redis(redis.url)
        self.sharing = SharedCounters(self._redis, name, self.counters)

    async def connect(self) -> None:
        """Connect for the next exchange, which then sends its message at once."""
        await self._redis.ping()

    async def exchange(self) -> None:
        async with self._redis:
            await self.sharing.exchange()
        self.counters.check_invariants()

    @property
    def figures(self) -> dict[str, int]:
        return {name: self.counters[name] for name in NAMES}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from(["lift", "charge", "exchange", "restart"]),
            st.sampled_from(NAMES),
            st.integers(-(2**40), 2**60),
        ),
        max_size=30,
    )
)
def test_redis_keeps_what_the_pickers_did(redis: RedisServer, history: list[tuple[int, str, str, int]]) -> None:
    """It executes the changes of each batch as the core does, exactly, and a picker that starts is told all."""

    async def happens() -> None:
        redis.client.flushall()
        common: Counter[str] = Counter()
        pickers = [SharingPicker(redis) for _ in range(2)]
        for at, what, name, micro in history:
            picker = pickers[at]
            if what == "lift":
                picker.counters.lift(name, micro)
            elif what == "charge":
                picker.counters.charge(name, micro >> 10)
            else:
                for account, change in picker.counters.begin(len(NAMES)).items():
                    common[account] = change.applied(common[account])
                await picker.exchange()
                assert picker.figures == {name: common[name] for name in NAMES}
                if what == "restart":
                    pickers[at] = SharingPicker(redis)

    asyncio.run(happens())


@pytest.mark.parametrize("before", [5, 0])
async def test_a_batch_counts_once_even_if_its_answer_is_lost(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """Redis stands still, so that the picker gives up waiting; what it had sent is executed afterwards.

    If that was nothing, what the picker does next counts all the same.
    """
    redis.client.flushall()
    first, second = SharingPicker(redis), SharingPicker(redis)
    await first.exchange()
    if before:
        first.counters.charge("ann", before)
    await first.connect()
    redis.pause()
    with monkeypatch.context() as impatient:
        impatient.setattr(shared_counters, "CALL_SECONDS", 0.2)
        with pytest.raises(TimeoutError):
            await first.exchange()
    redis.resume()
    await asyncio.to_thread(eventually, lambda: numbers(redis) == [2], "what was sent is executed")
    first.counters.charge("ann", 5 - before)
    await first.exchange()
    await second.exchange()
    assert [picker.counters["ann"] for picker in (first, second)] == [5, 5]


async def test_more_accounts_than_a_message_has_are_exchanged_in_several(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis.client.flushall()
    monkeypatch.setattr(shared_counters, "MOST_AT_ONCE", 3)
    first, second = SharingPicker(redis), SharingPicker(redis)
    for number in range(10):
        first.counters.charge(f"user-{number}", number)
        second.counters.charge(f"user-{number + 5}", 100)
    await first.exchange()
    await second.exchange()
    await first.exchange()
    for picker in (first, second):
        assert [picker.counters[f"user-{n}"] for n in (4, 5, 9, 14)] == [4, 105, 109, 100]


async def test_of_too_many_accounts_redis_forgets_the_ones_that_changed_first(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis.client.flushall()
    monkeypatch.setattr(shared_counters, "MOST_IDLE", 2)
    first, second = SharingPicker(redis), SharingPicker(redis)
    for number, name in enumerate(NAMES, 1):
        first.counters.charge(name, number)
        await first.exchange()
    await second.exchange()
    assert list(second.figures.values()) == [0, 2, 3]
    assert list(first.figures.values()) == [1, 2, 3]


async def test_pools_have_accounts_of_their_own(redis: RedisServer) -> None:
    redis.client.flushall()
    first, second = SharingPicker(redis, "picker:a:80"), SharingPicker(redis, "picker:b:80")
    first.counters.charge("ann", 1)
    await first.exchange()
    await second.exchange()
    assert second.counters["ann"] == 0


async def test_a_redis_that_was_killed_comes_back_with_all_accounts(tmp_path: Path) -> None:
    """Pickers go on without it; what each did meanwhile counts, on top of what they had in common."""
    redis = RedisServer(tmp_path)
    first, second = SharingPicker(redis), SharingPicker(redis)
    for picker, micro in ((first, 100), (second, 20), (first, 0)):
        picker.counters.charge("ann", micro)
        await picker.exchange()
    redis.kill()
    for picker, micro in ((first, 3), (second, 4)):
        picker.counters.charge("ann", micro)
        with pytest.raises((RedisError, OSError)):
            await picker.exchange()
        picker.counters.charge("ann", micro)
    assert [picker.counters["ann"] for picker in (first, second)] == [126, 128]
    redis.start()
    try:
        for picker in (first, second, first):
            await picker.exchange()
        assert [picker.counters["ann"] for picker in (first, second)] == [134, 134]
    finally:
        redis.kill()


ENDPOINT = "10.0.0.1:80"


async def test_two_pickers_count_a_client_together_and_each_goes_on_while_redis_is_away(tmp_path: Path) -> None:
    """Two processes give a request at a time to an endpoint. Of two that wait the one whose client had nothing goes."""
    redis = RedisServer(tmp_path)
    settings = {"listen": "127.0.0.1:0", "metrics": "127.0.0.1:0", "endpoints": ENDPOINT, "max_running": 1}
    settings |= {"redis": redis.url}
    first, second = [Process("endpoint_picker", tmp_path / f"{number}.log", settings) for number in range(2)]
    try:
        for picker in (first, second):
            are_shared(picker, 1)
        async with (
            grpc.aio.insecure_channel(first.address) as to_first,
            grpc.aio.insecure_channel(second.address) as to_second,
        ):
            running = Stream(ext_proc_pb2_grpc.ExternalProcessorStub(to_second))
            await running.place(b"{}", x_fairlead_user="another")
            streams = {}
            for number, user in enumerate(("heavy", "light"), 1):
                stream = Stream(ext_proc_pb2_grpc.ExternalProcessorStub(to_second))
                streams[asyncio.create_task(stream.place(b"{}", x_fairlead_user=user))] = user, stream
                await asyncio.to_thread(eventually, lambda: waiting(second) == number, f"{user} waits")  # noqa: B023
            elsewhere = Stream(ext_proc_pb2_grpc.ExternalProcessorStub(to_first))
            await elsewhere.place(json.dumps({"prompt": "x" * 40_000}).encode(), x_fairlead_user="heavy")
            await asyncio.to_thread(eventually, lambda: account(redis, "heavy"), "the charge is known")
            await asyncio.to_thread(have_exchanged, redis)
            await running.answered("500")
            (next_one,), _ = await asyncio.wait(streams, return_when=asyncio.FIRST_COMPLETED)
            user, stream = streams.pop(next_one)
            assert user == "light", "heavy waits longer, and was given 10,000 tokens by the other picker"

            before = account(redis, "heavy")
            redis.kill()
            for picker in (first, second):
                await asyncio.to_thread(are_shared, picker, 0)
                await asyncio.to_thread(picker.wait_for, "Redis is away: the accounts of clients are this picker's own")
            await stream.answered("500")
            await asyncio.wait(streams)
            redis.start()
            for picker in (first, second):
                await asyncio.to_thread(
                    picker.wait_for, "Redis is back: the accounts of clients are those of all pickers"
                )
            await asyncio.to_thread(have_exchanged, redis)
            assert account(redis, "heavy") >= before >= 10_000 * MICRO
    finally:
        for picker in (first, second):
            picker.kill()
        redis.kill()


def metric(picker: Process, name: str) -> float:
    port = picker.wait_for("listening")["metrics_port"]
    return sum(count for _, count in samples(scrape(port)[1])[name])


def are_shared(picker: Process, expected: int) -> None:
    """Wait until a picker says that it shares accounts, or that it does not."""
    eventually(lambda: metric(picker, "fairlead_picker_accounts_shared") == expected, f"{expected} accounts are shared")


def waiting(picker: Process) -> float:
    return metric(picker, "fairlead_picker_waiting")


def account(redis: RedisServer, name: str) -> int:
    """The counter of an account as pickers have it in common, in micro-units."""
    return sum(int(redis.client.hget(key, name) or 0) for key in redis.client.keys("*:service"))


def numbers(redis: RedisServer) -> list[int]:
    """The numbers of the pickers' last messages."""
    return [int(redis.client.get(key) or 0) for key in sorted(redis.client.keys("*:sent:*"))]


def have_exchanged(redis: RedisServer) -> None:
    """Wait until two pickers know what the others had sent before: two exchanges later the first is over."""
    before = eventually(lambda: len(found := numbers(redis)) == 2 and found, "both exchange")
    eventually(
        lambda: all(now >= then + 2 for now, then in zip(numbers(redis), before, strict=True)), "both exchange again"
    )
