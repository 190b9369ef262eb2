"""A gRPC server that stops ends no call that is on its way with a status that blames the caller."""

import asyncio
import contextlib
from collections import Counter
from typing import Any

import grpc

from serving.rpc.server import Server
from tests.ports import own_address

CALLERS = 120
BEFORE = 200  # calls that end before the server stops


async def answer(requests: Any, context: grpc.aio.ServicerContext) -> None:
    await context.read()
    await context.write(b"answer")


def register(servicer: object, server: grpc.aio.Server) -> None:
    handlers = {"Ask": grpc.stream_stream_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Service", handlers),))


async def test_no_call_is_cancelled() -> None:
    server = Server(own_address())
    server.add(register, object(), "test.Service")
    await server.start()
    ended: Counter[grpc.StatusCode] = Counter()
    enough = asyncio.Event()

    async def ask_until_it_stops(channel: grpc.aio.Channel) -> None:
        code = grpc.StatusCode.OK
        while code is grpc.StatusCode.OK:
            call = channel.stream_stream("/test.Service/Ask")(iter([b"question"]))
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for _ in call:
                    pass
            code = await call.code()
            ended[code] += 1
            if ended.total() == BEFORE:
                enough.set()

    # As callers without the SDK are: nothing is repeated.
    options = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options) for _ in range(10)]
    async with asyncio.TaskGroup() as tasks:
        for number in range(CALLERS):
            tasks.create_task(ask_until_it_stops(channels[number % len(channels)]))
        await enough.wait()
        await server.stop(grace=60)
    for channel in channels:
        await channel.close()
    assert ended.keys() == {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
    assert ended[grpc.StatusCode.UNAVAILABLE] == CALLERS
