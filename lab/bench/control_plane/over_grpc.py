"""The job over the gateway's gRPC front: each caller has a channel, and so a connection, of its own."""

import time
from pathlib import Path

import grpc

from fairlead.rpc.channel import CHANNEL_OPTIONS
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from lab.bench.control_plane.job import Job, Measured, measure


async def over_grpc(
    address: str, processes: dict[str, int], job: Job, streaming: "inference_pb2.Streaming", authority: Path | None
) -> Measured:
    """Run the job at `address`, whose certificate `authority` signed if there is one."""
    channels = [_channel(address, authority) for _ in range(job.callers)]
    idle = list(channels)

    async def call(prompt: str) -> float:
        channel = idle.pop()
        request = inference_pb2.GenerateRequest(
            prompt=common_pb2.Prompt(text=prompt), sampling=sampling(job), streaming=streaming
        )
        began, first = time.perf_counter(), 0.0
        async for response in inference_pb2_grpc.InferenceStub(channel).Generate(request):
            if not first and response.HasField("chunk"):
                first = time.perf_counter() - began
        idle.append(channel)
        return first

    try:
        return await measure(job, call, processes)
    finally:
        for channel in channels:
            await channel.close()


def sampling(job: Job) -> common_pb2.SamplingParams:
    """Return parameters by which every call generates as many tokens as the job says."""
    return common_pb2.SamplingParams(max_tokens=job.tokens, temperature=0.0, ignore_eos=True)


def _channel(address: str, authority: Path | None) -> grpc.aio.Channel:
    if authority is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(authority.read_bytes())
    return grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS)
