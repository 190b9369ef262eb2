"""The scheduler as a process: it says where it listens, and ends cleanly with streams open."""

import asyncio
import json
import os
import sys

import grpc
import pytest

from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from serving.rpc.channel import open_channel, secret_metadata

SECRET = "a-secret-for-tests-only"


@pytest.mark.e2e
async def test_sigterm_ends_open_streams_and_the_process() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "global_scheduler", "--listen", "127.0.0.1:0"),
        env=os.environ | {"FAIRLEAD_SECRET": SECRET},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        said = json.loads(await process.stderr.readline())
        assert (said["message"], said["service"]) == ("listening", "global_scheduler")
        async with open_channel(f"127.0.0.1:{said['port']}") as channel:
            stub = scheduler_pb2_grpc.SchedulerStub(channel)
            watch = stub.Watch(scheduler_pb2.WatchRequest(), metadata=secret_metadata(SECRET))
            assert not (await watch.read()).members
            process.terminate()
            with pytest.raises(grpc.aio.AioRpcError):
                await watch.read()
        assert await process.wait() == 0
        assert await process.stderr.read() == b"", "a clean end has nothing to complain about"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
