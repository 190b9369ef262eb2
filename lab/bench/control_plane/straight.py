"""The job without a control plane: straight to the workers."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator

from cli.stack import Stack
from fairlead.v1 import common_pb2, worker_pb2, worker_pb2_grpc
from lab.bench.control_plane.job import Job, Measured, measure
from lab.bench.control_plane.over_grpc import sampling
from lab.bench.control_plane.stack import processes
from serving.rpc.channel import open_channel, secret_metadata


async def straight_to_a_worker(stack: Stack, job: Job) -> Measured:
    """Tokenize and stream with one stream per call over the workers in turn, without dispatch, throttling or
    accounting."""
    addresses = [f"127.0.0.1:{p.log.lines('listening')[0]['port']}" for p in stack.processes if "worker" in p.name]
    channels = [open_channel(address) for address in addresses]
    turns, metadata = itertools.cycle(channels), secret_metadata(stack.secret)

    async def call(prompt: str) -> float:
        channel, began, first = next(turns), time.perf_counter(), 0.0
        encoded = await worker_pb2_grpc.TokenizerStub(channel).Encode(
            worker_pb2.EncodeRequest(prompt=common_pb2.Prompt(text=prompt)), metadata=metadata
        )
        submit = worker_pb2.Submit(
            request_id=str(began),
            attempt=1,
            client="x",
            token_ids=encoded.token_ids,
            sampling=sampling(job),
            weight=1.0,
        )
        done = asyncio.Event()

        async def commands() -> AsyncIterator[worker_pb2.SessionCommands]:
            yield worker_pb2.SessionCommands(submits=[submit])
            await done.wait()

        async for events in worker_pb2_grpc.WorkerStub(channel).Session(commands(), metadata=metadata):
            if not first and events.tokens:
                first = time.perf_counter() - began
            if events.ended:
                done.set()
        return first

    try:
        return await measure(job, call, processes(stack))
    finally:
        for channel in channels:
            await channel.close()
