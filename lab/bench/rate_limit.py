"""What a request costs the rate limit service, without Envoy: CPU time of its process.

    python -m lab.bench.rate_limit [--requests 4000] [--callers 8]

The service and its callers have processes of their own; only the service's time counts. The last row is a server of
gRPC with the same message whose handler returns a constant: what no service in Python can save.
"""

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
import uvloop

from cli.service_process import ServiceProcess
from lab.bench.control_plane.job import cpu_seconds
from lab.bench.machine import commit, processor
from serving.envoy import ratelimit_pb2, ratelimit_pb2_grpc

START_SECONDS = 60.0
WARM_UP = 200  # requests before those that are measured
PROFILES = "limits: {user_tokens_per_minute: 2000000000}\napps: {default: {expected: {input: 500, output: 200}}}\n"
Descriptors = Callable[[int], list[ratelimit_pb2.RateLimitDescriptor]]


def descriptor(hits: int = 0, **entries: str) -> ratelimit_pb2.RateLimitDescriptor:
    """Return the descriptor with these entries, and with `hits` as its hits_addend unless they are 0."""
    made = ratelimit_pb2.RateLimitDescriptor(entries=[{"key": key, "value": entries[key].encode()} for key in entries])
    if hits:
        made.hits_addend.value = hits
    return made


def user(number: int) -> str:
    """Return the name of one of a hundred users."""
    return f"user {number % 100}"


KINDS: dict[str, Descriptors] = {
    "a user": lambda number: [descriptor(user=user(number))],
    "a call of an interaction": lambda number: [descriptor(user=user(number), interaction=f"journey {number % 1000}")],
    "a reservation": lambda number: [descriptor(user=user(number), request=str(number))],
    "the end of its stream": lambda number: [
        descriptor(500, user=user(number), request=str(number), book="input"),
        descriptor(100, user=user(number), request=str(number), book="output"),
    ],
}


class Constant(ratelimit_pb2_grpc.RateLimitServiceServicer):
    """A service that looks at nothing."""

    async def ShouldRateLimit(
        self, request: ratelimit_pb2.RateLimitRequest, context: grpc.aio.ServicerContext
    ) -> ratelimit_pb2.RateLimitResponse:
        """Admit every call."""
        return ratelimit_pb2.RateLimitResponse(overall_code=ratelimit_pb2.RateLimitResponse.OK)


def serve_constant(port: Connection) -> None:
    """Run the service that looks at nothing until this process is killed; send its port."""

    async def serve() -> None:
        server = grpc.aio.server()
        ratelimit_pb2_grpc.add_RateLimitServiceServicer_to_server(Constant(), server)
        port.send(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        await server.wait_for_termination()

    uvloop.run(serve())


async def ask(address: str, descriptors: Descriptors, requests: int, callers: int) -> None:
    """Make `requests` requests on one connection, `callers` at a time; raise RuntimeError if one is refused."""
    numbers = iter(range(requests))
    async with grpc.aio.insecure_channel(address) as channel:
        stub = ratelimit_pb2_grpc.RateLimitServiceStub(channel)

        async def caller() -> None:
            for number in numbers:
                request = ratelimit_pb2.RateLimitRequest(domain="fairlead", descriptors=descriptors(number))
                answer = await stub.ShouldRateLimit(request, wait_for_ready=True)
                if answer.overall_code != ratelimit_pb2.RateLimitResponse.OK:
                    raise RuntimeError(answer.raw_body.decode())

        async with asyncio.TaskGroup() as tasks:
            for _ in range(callers):
                tasks.create_task(caller())


def measure(pid: int, address: str, descriptors: Descriptors, options: argparse.Namespace) -> float:
    """Return the CPU time of the process `pid` for a request, in milliseconds."""
    before = cpu_seconds(pid)
    uvloop.run(ask(address, descriptors, options.requests, options.callers))
    return 1000 * (cpu_seconds(pid) - before) / float(options.requests)


def main() -> None:
    """Print the CPU time of each kind of request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=4000, help="number of requests of each kind")
    parser.add_argument("--callers", type=int, default=8, help="number of requests in progress at a time")
    options = parser.parse_args()
    print(f"{processor()}; commit {commit()}; {options.requests} requests of each kind, {options.callers} at a time")
    print("| request | CPU, ms |\n|---|---|")
    with tempfile.TemporaryDirectory() as name:
        profiles = Path(name) / "profiles.yaml"
        profiles.write_text(PROFILES)
        flags = ["--listen", "127.0.0.1:0", "--throttle", "oit:10000000,100000000"]
        environment = {"FAIRLEAD_SECRET": "a secret for this benchmark"}
        service = ServiceProcess(
            "throttler", "throttler", [*flags, "--profiles", str(profiles)], environment, Path(name) / "log"
        )
        try:
            port = service.wait_for("listening", time.monotonic() + START_SECONDS)["port"]
            uvloop.run(ask(f"127.0.0.1:{port}", KINDS["a user"], WARM_UP, options.callers))
            for kind, descriptors in KINDS.items():
                spent = measure(service.pid, f"127.0.0.1:{port}", descriptors, options)
                print(f"| {kind} | {spent:.3f} |", flush=True)
        finally:
            service.kill()
    here, there = multiprocessing.Pipe()
    constant = multiprocessing.Process(target=serve_constant, args=(there,), daemon=True)
    constant.start()
    assert constant.pid is not None
    address = f"127.0.0.1:{here.recv()}"
    uvloop.run(ask(address, KINDS["a user"], WARM_UP, options.callers))
    print(f"| gRPC alone | {measure(constant.pid, address, KINDS['a user'], options):.3f} |")
    constant.kill()


if __name__ == "__main__":
    main()
