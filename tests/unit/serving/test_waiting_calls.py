"""Calls that wait for a server's event loop."""

import asyncio
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from serving.rpc.channel import SERVER_OPTIONS

METHOD = "/test.Test/Echo"
BLOCKED_SECONDS = 32  # gRPC's own limit is 30


async def echo(request: bytes, _: object) -> bytes:
    return request


@pytest.mark.slow
async def test_calls_wait_for_the_event_loop_longer_than_grpc_lets_them() -> None:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Test", {"Echo": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    is_blocked = threading.Event()

    def ends() -> Counter[grpc.StatusCode]:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            is_blocked.wait()
            calls = [channel.unary_unary(METHOD).future(b"x", timeout=300) for _ in range(8)]
            return Counter(call.code() for call in calls)

    with ThreadPoolExecutor() as pool:
        ended = pool.submit(ends)
        is_blocked.set()
        time.sleep(BLOCKED_SECONDS)  # noqa: ASYNC251 - what the test is about
        assert await asyncio.wrap_future(ended) == {grpc.StatusCode.OK: 8}
    await server.stop(None)
