"""The job on Fairlead: through the gateway, and straight to the workers."""

import asyncio
import itertools
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from bench.control_plane.job import PROMPT_BYTES, Job, Measured, measure
from cli.stack import Stack
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc, worker_pb2, worker_pb2_grpc
from serving.rpc.channel import open_channel, secret_metadata


def start(workers: int, step_seconds: float) -> Stack:
    """Return a stack of workers with the fake engine, whose steps take this time for any batch."""
    options = {
        "fake-step-seconds": step_seconds,
        "max-prompt-tokens": PROMPT_BYTES,
        "kv-tokens": 1 << 21,
        "token-budget": 1 << 20,
        "max-running": 64,
    }
    worker_args = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return Stack(
        workers=workers,
        log_dir=Path(tempfile.mkdtemp(prefix="fairlead-bench-")),
        model="fake",
        engine="fake",
        worker_args=worker_args,
        gateway_args=["--throttle", "none", "--max-streams-per-client", "1024"],
        http_listen="127.0.0.1:0",
    )


def processes(stack: Stack) -> dict[str, int]:
    """Return the ids of all processes by name, including the workers."""
    return {process.name: process.pid for process in stack.processes}


def sampling(job: Job) -> common_pb2.SamplingParams:
    """Return parameters by which every call generates as many tokens as the job says."""
    return common_pb2.SamplingParams(max_tokens=job.tokens, temperature=0.0, ignore_eos=True)


async def through_the_gateway(stack: Stack, job: Job, streaming: "inference_pb2.Streaming") -> Measured:
    """Run the job through the gateway over gRPC, as applications do."""
    async with grpc.aio.insecure_channel(stack.gateway) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)

        async def call(prompt: str) -> float:
            request = inference_pb2.GenerateRequest(
                prompt=common_pb2.Prompt(text=prompt), sampling=sampling(job), streaming=streaming
            )
            began, first = time.perf_counter(), 0.0
            async for response in stub.Generate(request):
                if not first and response.HasField("chunk"):
                    first = time.perf_counter() - began
            return first

        return await measure(job, call, processes(stack))


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
