"""Messages that never end: they cost little memory, and nobody else a call."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fairlead import Client, Retries
from fairlead.rpc.channel import MAX_MESSAGE_BYTES
from serving.rpc.channel import MAX_REQUEST_BYTES
from tests.services import Process, Stack
from tests.system.attacks.conftest import KEY
from tests.system.attacks.http2 import Connection

GENERATE = "/fairlead.v1.Inference/Generate"


def unfinished(size: int) -> bytes:
    """A message of `size` bytes but for its end."""
    return b"\0" + struct.pack(">I", size) + bytes(size - 100)


async def stall(process: Process, method: str, calls: int, body: bytes, connections: int = 4) -> None:
    """Begin calls that nobody may make, and wait until all of them are refused."""
    process.begin_peak()
    opened = [await Connection.to(process.address) for _ in range(connections)]
    begun = [(each, {each.begin(method, body) for _ in range(calls // connections)}) for each in opened]
    for connection, streams in begun:
        await connection.until_ended(streams)
        connection.close()


def test_a_gateway_reads_nothing_of_callers_without_a_key(shared_gateway: Process) -> None:
    asyncio.run(stall(shared_gateway, GENERATE, 200, unfinished(MAX_REQUEST_BYTES)))
    assert shared_gateway.peak < 100


@pytest.mark.parametrize("method", ["/fairlead.v1.Admin/Status", "/fairlead.v1.Scheduler/Attach"])
def test_a_scheduler_reads_nothing_of_callers_without_the_secret(shared: Stack, method: str) -> None:
    asyncio.run(stall(shared.scheduler, method, 40, unfinished(MAX_MESSAGE_BYTES)))
    assert shared.scheduler.peak < 100


@pytest.mark.parametrize("method", ["/fairlead.v1.Worker/Session", "/fairlead.v1.Tokenizer/Encode"])
def test_a_worker_reads_nothing_of_callers_without_the_secret(shared: Stack, method: str) -> None:
    asyncio.run(stall(shared.workers["a"], method, 40, unfinished(MAX_MESSAGE_BYTES)))
    assert shared.workers["a"].peak < 100


def test_an_operators_service_reads_nothing_of_callers_without_the_secret(shared_gateway: Process) -> None:
    asyncio.run(stall(shared_gateway, "/fairlead.v1.Traces/FindTrace", 200, unfinished(MAX_REQUEST_BYTES)))
    assert shared_gateway.peak < 100


def test_calls_of_which_nothing_follows_their_headers(shared_gateway: Process) -> None:
    asyncio.run(stall(shared_gateway, GENERATE, 5000, b"", connections=10))
    assert shared_gateway.peak < 160


@asynccontextmanager
async def stalled(gateway: Process, method: str, *metadata: tuple[bytes, bytes]) -> AsyncIterator[None]:
    """Eight connections have begun 400 messages and end none."""
    gateway.begin_peak()
    opened = [await Connection.to(gateway.address) for _ in range(8)]
    begun = [each.begin(method, unfinished(MAX_REQUEST_BYTES), *metadata) for each in opened for _ in range(50)]
    assert len(begun) == 400
    yield
    for connection in opened:
        connection.close()


async def calls_beside_calls(gateway: Process) -> None:
    async with (
        stalled(gateway, GENERATE, (b"authorization", b"Bearer " + KEY.encode())),
        Client(gateway.address, api_key=KEY, retries=Retries(attempts=0)) as client,
    ):
        for _ in range(3):
            await client.generate("hello", max_tokens=4)


async def probes_beside_checks(gateway: Process) -> None:
    async with stalled(gateway, "/grpc.health.v1.Health/Check"):
        for _ in range(5):
            async with grpc.aio.insecure_channel(gateway.address) as channel:
                await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)


def test_of_holders_of_keys_a_few_messages_arrive_at_a_time(shared_gateway: Process) -> None:
    asyncio.run(calls_beside_calls(shared_gateway))
    assert shared_gateway.peak < 100 + 2 * 128


def test_probes_are_answered_beside_checks_that_never_end(shared_gateway: Process) -> None:
    asyncio.run(probes_beside_checks(shared_gateway))
    assert shared_gateway.peak < 250


async def ended(gateway: Process) -> None:
    connection = await Connection.to(gateway.address)
    streams = {connection.begin(GENERATE, unfinished(1000)) for _ in range(20)}
    await connection.until_ended(streams)
    connection.close()


def test_a_message_has_a_time_to_arrive(stack: Stack) -> None:
    gateway = stack.start("gateway", scheduler=stack.addresses, throttle="none", request_seconds=0.2)
    gateway.wait_for("ready")
    asyncio.run(ended(gateway))
    calls = gateway.logged("call ended")
    assert {line["outcome"] for line in calls} == {"REJECTED_QUEUE_FULL"}
    assert all("did not arrive within 0.2 s" in line["reason"] for line in calls)
