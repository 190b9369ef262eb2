"""Real gateways on a real Redis: one limit, health that says when it is not shared, files read again."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fairlead.errors import FairleadError, ThrottledUser, Unauthenticated
from fairlead.rpc.status import from_call
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.redis_server import RedisServer
from tests.services import Process, Stack, eventually
from throttler.core.throttle import WINDOW_SECONDS

LIMIT = 20


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """Killed also where a test fails."""
    server = RedisServer(tmp_path)
    yield server
    server.kill()


def attempt(gateway: Process, *, key: str = "", max_tokens: int = 1) -> FairleadError | None:
    """One call's error, or None when it completed."""
    request = inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(text="hello"),
        sampling=common_pb2.SamplingParams(max_tokens=max_tokens, ignore_eos=True),
    )
    metadata = [("authorization", f"Bearer {key}")] if key else []
    with grpc.insecure_channel(gateway.address) as channel:
        try:
            list(inference_pb2_grpc.InferenceStub(channel).Generate(request, timeout=60, metadata=metadata))
        except grpc.RpcError as error:
            return from_call(error)
    return None


def within_a_minute(attempts: Callable[[], list[FairleadError | None]]) -> list[FairleadError | None]:
    """What attempts give that are made in one minute: in the next one, `rpm` counts anew."""
    while True:
        minute = time.monotonic() // WINDOW_SECONDS
        results = attempts()
        if time.monotonic() // WINDOW_SECONDS == minute:
            return results


def shares_limits(gateway: Process) -> bool:
    with grpc.insecure_channel(gateway.address) as channel:
        request = health_pb2.HealthCheckRequest(service="shared-limits")
        status = health_pb2_grpc.HealthStub(channel).Check(request, timeout=60).status
    return bool(status == health_pb2.HealthCheckResponse.SERVING)


def keeps_limits(gateway: Process) -> bool:
    return not shares_limits(gateway)


@pytest.mark.e2e
def test_four_gateways_have_one_limit_and_say_when_it_is_not_shared(stack: Stack, redis: RedisServer) -> None:
    stack.worker("a")
    gateways = [stack.gateway(throttle="rpm:8", redis=redis.url) for _ in range(4)]
    for gateway in gateways:
        eventually(partial(shares_limits, gateway), "limits are shared")
    results = within_a_minute(lambda: [attempt(gateways[number % 4]) for number in range(24)])
    completed = results.count(None)
    assert completed <= 8
    assert all(isinstance(error, ThrottledUser) for error in results if error is not None)
    redis.kill()
    for gateway in gateways:
        eventually(partial(keeps_limits, gateway), "one that counts by itself says so")
    redis.start()
    for gateway in gateways:
        eventually(partial(shares_limits, gateway), "limits are shared again")


def test_a_gateway_that_starts_without_redis_takes_its_part_and_no_more(stack: Stack, tmp_path: Path) -> None:
    stack.worker("a")
    nowhere = f"unix://{tmp_path}/no.sock"
    gateway = stack.gateway(throttle="rpm:8", redis=nowhere)
    completed = [attempt(gateway) for _ in range(12)].count(None)
    assert 2 <= completed <= 4, "a minute may turn once"


def call_of(user: str, channel: grpc.aio.Channel) -> grpc.aio.UnaryStreamCall:
    """A call that would take forty seconds, alone."""
    request = inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(text="hello"),
        sampling=common_pb2.SamplingParams(max_tokens=2000, ignore_eos=True),
    )
    stub = inference_pb2_grpc.InferenceStub(channel)
    return stub.Generate(request, timeout=120, metadata=[("x-fairlead-user", user)])


def knows_of_overload(gateway: Process) -> bool:
    lines = gateway.logged("overload changed")
    return bool(lines and lines[-1]["models"])


async def burst(gateways: list[Process], calls: int) -> int:
    """How many of an abuser's calls, all at once, are let in while the pool is overloaded: they wait in the queue."""
    channels = [grpc.aio.insecure_channel(gateway.address) for gateway in gateways]
    queue = [call_of("filler", channels[number % 4]) for number in range(6)]
    for gateway in gateways:
        await asyncio.to_thread(eventually, partial(knows_of_overload, gateway), "every gateway knows of the overload")
    ingress = [0] * 14 + [1] * 3 + [2] * 2 + [3]  # of twenty
    abuse = [call_of("abuser", channels[ingress[number % 20]]) for number in range(calls)]
    pending = {asyncio.ensure_future(call.code()) for call in abuse}
    async with asyncio.timeout(60):
        while len(pending) > LIMIT:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            assert {task.result() for task in done} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    for call in (*abuse, *queue):
        call.cancel()
    await asyncio.gather(*pending)
    for channel in channels:
        await channel.close()
    return sum(task.result() is grpc.StatusCode.CANCELLED for task in pending)


@pytest.mark.e2e
async def test_a_burst_at_four_gateways_under_overload(stack: Stack, redis: RedisServer) -> None:
    stack.worker("a", engine="fake:0.02", max_running=1)
    gateways = [stack.gateway(throttle=f"oit:{LIMIT}", redis=redis.url) for _ in range(4)]
    for gateway in gateways:
        eventually(partial(shares_limits, gateway), "limits are shared")
    # No more calls than a busy machine answers within the minute that `burst` waits for them.
    assert 0.9 * LIMIT <= await burst(gateways, 10 * LIMIT) <= LIMIT


def write_whole(path: Path, text: str) -> None:
    """Write a file of which nobody reads a part: `write_text` empties it first, and a gateway may look just then."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def keys_file(path: Path) -> Callable[..., None]:
    def write(*names: str) -> None:
        digests = [hashlib.sha256(name.encode()).hexdigest() for name in names]
        write_whole(path, "keys:\n" + "".join(f"  - {{hash: {digest}, tenant: t}}\n" for digest in digests))

    return write


def test_keys_and_profiles_are_read_again(stack: Stack, tmp_path: Path) -> None:
    stack.worker("a")
    keys, profiles = tmp_path / "keys.yaml", tmp_path / "profiles.yaml"
    write_keys = keys_file(keys)
    write_keys("old")
    write_whole(profiles, "limits: {user_per_minute: 1000}")
    gateway = stack.start("gateway", scheduler=stack.scheduler.address, keys=keys, profiles=profiles, throttle="rpm")
    eventually(lambda: gateway.logged("ready"), "a worker is known")
    assert attempt(gateway, key="old") is None
    assert isinstance(attempt(gateway, key="new"), Unauthenticated)
    write_keys("new")
    eventually(lambda: gateway.logged("configuration reloaded"), "the file is read again")
    assert attempt(gateway, key="new") is None
    assert isinstance(attempt(gateway, key="old"), Unauthenticated)
    write_whole(profiles, "limits:\n  user_per_minute: none")
    [line] = eventually(lambda: gateway.logged("configuration not reloaded: it is wrong"), "it is refused")
    assert "profiles.yaml:2: limits.user_per_minute" in line["error"]
    assert attempt(gateway, key="new") is None, "what was there before still holds"
    write_whole(profiles, "tiers:\n  gold: 2026-13-45")
    refusals = "configuration not reloaded: it is wrong"
    eventually(lambda: len(gateway.logged(refusals)) == 2, "a value that is none ends no gateway")
    write_whole(profiles, "limits: {user_per_minute: 1}")
    eventually(lambda: len(gateway.logged("configuration reloaded")) == 2, "the limit is lowered")
    refused = [error for error in (attempt(gateway, key="new") for _ in range(3)) if error]
    assert refused, "at most one a minute, and a minute may turn once"
