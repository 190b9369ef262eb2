"""More calls at once than the gateway can take up at once: none vanishes."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import grpc

from fairlead import Client, Retries
from tests.services import Process
from tests.system.attacks.conftest import KEY

CONNECTIONS = 8
STRANGERS = 3000
HONEST = 30
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


async def burst(address: str) -> Counter[grpc.StatusCode]:
    """How the calls of many strangers end, all made at once on a few connections."""
    async with AsyncExitStack() as channels:
        ends: list[grpc.aio.UnaryUnaryCall] = []
        for _ in range(CONNECTIONS):
            channel = await channels.enter_async_context(grpc.aio.insecure_channel(address, OWN_CONNECTION))
            await channel.channel_ready()
            method = channel.unary_unary("/fairlead.v1.Inference/Generate")
            ends += [method(b"", timeout=300) for _ in range(STRANGERS // CONNECTIONS)]
        return Counter([await end.code() for end in ends])


async def honest(address: str) -> int:
    """How many calls complete, each at the first try."""
    async with Client(address, api_key=KEY, retries=Retries(attempts=0)) as client:
        return len(await asyncio.gather(*[client.generate("hello", max_tokens=4) for _ in range(HONEST)]))


async def beside_each_other(address: str) -> tuple[Counter[grpc.StatusCode], int]:
    return await asyncio.gather(burst(address), honest(address))


def test_a_burst_of_strangers(gateway: Process) -> None:
    refused, completed = asyncio.run(beside_each_other(gateway.address))
    assert refused == {grpc.StatusCode.UNAUTHENTICATED: STRANGERS}
    assert completed == HONEST
    assert len(gateway.logged("call ended")) == STRANGERS + HONEST
