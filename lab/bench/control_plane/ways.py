"""The ways to call one gateway: by each protocol, with four tokens per message or with one."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from fairlead.v1 import inference_pb2
from lab.bench.control_plane.job import Job, Measured
from lab.bench.control_plane.over_grpc import over_grpc
from lab.bench.control_plane.over_http import COALESCED, EACH_TOKEN, over_http
from lab.bench.control_plane.stack import Gateway

GRPC = {
    "gRPC, coalesced": inference_pb2.STREAMING_COALESCED,
    "gRPC, each token": inference_pb2.STREAMING_EACH_TOKEN,
}
HTTP = {"HTTP, coalesced": COALESCED, "HTTP, each token": EACH_TOKEN}


def ways(gateway: Gateway) -> Mapping[str, Callable[[Job], Measured]]:
    """Return by name what runs a job at `gateway`."""
    return {name: partial(_over_grpc, gateway, streaming) for name, streaming in GRPC.items()} | {
        name: partial(_over_http, gateway, headers) for name, headers in HTTP.items()
    }


def _over_grpc(gateway: Gateway, streaming: "inference_pb2.Streaming", job: Job) -> Measured:
    return asyncio.run(over_grpc(gateway.grpc, gateway.processes, job, streaming, gateway.authority))


def _over_http(gateway: Gateway, headers: Mapping[str, str], job: Job) -> Measured:
    return asyncio.run(over_http(gateway.http, gateway.processes, job, headers, gateway.authority))
