"""What gRPC alone costs an endpoint picker: CPU time of a request beside those of a service without any decision, and
of the picker's Python without gRPC.

    python -m lab.bench.ext_proc [--requests 400] [--callers 8] [--prompt 8000] [--redis URL]

The caller speaks as an Envoy with the configuration of deploy/envoy does: one stream places a request, another observes
it, and a unary call tells its end and its tokens. The bare service answers with the same messages, and neither reads
them nor remembers anything. "Handlers" is the picker in this process: it parses the messages, decides, and serializes
its answers, which are not sent.
With `--redis` one more picker takes its turn, which keeps its clients' accounts in that Redis.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import grpc
import uvloop

from endpoint_picker import answers
from endpoint_picker.app import make_picker
from endpoint_picker.config import PickerConfig
from endpoint_picker.core.service_counters import ServiceCounters
from endpoint_picker.following_stream import FollowingStream
from endpoint_picker.held_bodies import HeldBodies
from endpoint_picker.open_request import OpenRequest
from endpoint_picker.request_stream import RequestStream
from endpoint_picker.token_prompts import read_text
from endpoint_picker.usage_reports import KEY, UsageReports
from lab.bench.control_plane.job import cpu_seconds
from lab.bench.machine import commit, processor
from lab.bench.rate_limit import Constant, descriptor
from serving.envoy import ext_proc_pb2, ext_proc_pb2_grpc, ratelimit_pb2, ratelimit_pb2_grpc

WARM_UP = 50  # requests before those that are measured
TOKENS = 8  # of an answer
ENGINES = "127.0.0.1:1,127.0.0.1:2"
PICKER = ("endpoint_picker", "--listen", "127.0.0.1:0", "--endpoints", ENGINES)
BARE = ("lab.bench.ext_proc", "--bare")
HEADERS = {
    ":method": "POST",
    ":path": "/v1/completions",
    ":authority": "engines",
    ":scheme": "http",
    "content-type": "application/json",
    "x-request-id": "0c1b2a39-4857-4665-b473-829100000000",
    "x-forwarded-proto": "http",
}
Request = ext_proc_pb2.ProcessingRequest


class BareProcessor(ext_proc_pb2_grpc.ExternalProcessorServicer):
    """Sends every request to one endpoint."""

    async def Process(self, request_iterator: AsyncIterator[Request], context: grpc.aio.ServicerContext) -> None:
        """Answer the end of a body with a destination and the body; see ExternalProcessor."""
        async for message in request_iterator:
            if message.HasField("request_body") and message.request_body.end_of_stream:
                await context.write(answers.destination(ENGINES.split(","), "request"))
                for part in answers.body([message.request_body.body], True):
                    await context.write(part)


async def serve_bare() -> None:
    """Serve until killed; print the line that the picker logs."""
    server = grpc.aio.server()
    ext_proc_pb2_grpc.add_ExternalProcessorServicer_to_server(BareProcessor(), server)
    ratelimit_pb2_grpc.add_RateLimitServiceServicer_to_server(Constant(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps({"message": "listening", "port": port}), file=sys.stderr, flush=True)
    await server.wait_for_termination()


def header_map(**more: str) -> ext_proc_pb2.HttpHeaders:
    """Return the headers of a request, with `more`."""
    named = [ext_proc_pb2.HeaderValue(key=key, raw_value=each.encode()) for key, each in (HEADERS | more).items()]
    return ext_proc_pb2.HttpHeaders(headers=ext_proc_pb2.HeaderMap(headers=named))


def placing_messages(body: bytes, user: str) -> list[Request]:
    """Return what the filter sends that places a request."""
    return [
        Request(request_headers=header_map(**{"x-fairlead-user": user})),
        Request(request_body=ext_proc_pb2.HttpBody(body=body, end_of_stream=True)),
    ]


def following_messages(placed: Iterable[ext_proc_pb2.HeaderValueOption]) -> list[Request]:
    """Return what the filter sends that observes a request, which has the headers `placed` beside its own."""
    named = {each.header.key: each.header.raw_value.decode() for each in placed}
    status = ext_proc_pb2.HeaderMap(headers=[ext_proc_pb2.HeaderValue(key=":status", raw_value=b"200")])
    messages = [
        Request(request_headers=header_map(**named)),
        Request(response_headers=ext_proc_pb2.HttpHeaders(headers=status)),
        Request(response_trailers=ext_proc_pb2.HttpTrailers()),
    ]
    for message in messages:
        message.observability_mode = True
    return messages


def report(placed: Iterable[ext_proc_pb2.HeaderValueOption]) -> ratelimit_pb2.RateLimitRequest:
    """Return what the filter sends that tells the end and the tokens of a request."""
    pick = next(each.header.raw_value.decode() for each in placed if each.header.key == answers.PICK)
    return ratelimit_pb2.RateLimitRequest(domain="fairlead", descriptors=[descriptor(TOKENS, **{KEY: pick})])


async def request(
    stub: ext_proc_pb2_grpc.ExternalProcessorStub,
    reports: ratelimit_pb2_grpc.RateLimitServiceStub,
    body: bytes,
    user: str,
) -> None:
    """Let one request be placed, observe it, and tell its end."""
    placing = stub.Process()
    for message in placing_messages(body, user):
        await placing.write(message)
    placed = (await placing.read()).request_headers.response.header_mutation.set_headers
    while not (await placing.read()).request_body.response.body_mutation.streamed_response.end_of_stream:
        pass
    await placing.done_writing()
    await placing.read()
    following = stub.Process()
    for message in following_messages(placed):
        await following.write(message)
    await reports.ShouldRateLimit(report(placed))
    await following.done_writing()
    await following.read()


def completion(number: int, user: str, prompt: int) -> bytes:
    """Return a request with a prompt of `prompt` bytes, the first half of which is its user's."""
    text = f"the beginning of {user}. " * (prompt // 40) + f"request {number}. " * (prompt // 24)
    return json.dumps({"model": "m", "prompt": text, "max_tokens": TOKENS}).encode()


async def handle_alone(requests: int, callers: int, prompt: int) -> float:
    """Return the CPU seconds that the handlers take for `requests` requests, from bytes that come to bytes that go."""
    picker = make_picker(PickerConfig(endpoints=ENGINES), ServiceCounters())
    picker.set_endpoints(ENGINES.split(","))
    by_id: dict[str, OpenRequest] = {}
    spent = 0.0

    async def handled(stream: RequestStream | FollowingStream, messages: Iterable[Request]) -> list[bytes]:
        nonlocal spent
        data = [message.SerializeToString() for message in messages]
        began = time.process_time()
        said = [
            response.SerializeToString() for each in data for response in await stream.handle(Request.FromString(each))
        ]
        spent += time.process_time() - began
        return said

    bodies = HeldBodies()
    for number in range(requests):
        user = f"user-{number % callers}"
        placing, following = RequestStream(picker, {}, read_text, by_id, bodies), FollowingStream(by_id)
        first, *_ = await handled(placing, placing_messages(completion(number, user, prompt), user))
        placed = ext_proc_pb2.ProcessingResponse.FromString(first).request_headers.response.header_mutation
        await handled(following, following_messages(placed.set_headers))
        told = report(placed.set_headers).SerializeToString()
        began = time.process_time()
        done = ratelimit_pb2.RateLimitRequest.FromString(told)
        (await UsageReports(by_id).ShouldRateLimit(done, None)).SerializeToString()
        following.close()
        spent += time.process_time() - began
        by_id.clear()
    return spent


async def drive(port: int, requests: int, callers: int, prompt: int) -> None:
    """Make `requests` requests, `callers` at a time; the first half of a prompt of `prompt` bytes is its user's."""
    numbers = iter(range(requests))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = ext_proc_pb2_grpc.ExternalProcessorStub(channel)
        reports = ratelimit_pb2_grpc.RateLimitServiceStub(channel)

        async def caller(user: str) -> None:
            for number in numbers:
                await request(stub, reports, completion(number, user, prompt), user)

        async with asyncio.TaskGroup() as tasks:
            for number in range(callers):
                tasks.create_task(caller(f"user-{number}"))


@asynccontextmanager
async def service(command: tuple[str, ...]) -> AsyncIterator[tuple[int, int]]:
    """Run a service, and yield its process id and its port."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", *command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        async for line in process.stderr:
            if b'"listening"' in line:
                yield process.pid, json.loads(line)["port"]
                return
        raise RuntimeError(f"{command[0]} has ended")
    finally:
        process.kill()
        await process.wait()


async def measure(options: argparse.Namespace) -> None:
    """Print the CPU time of a request in each service, which take turns."""
    services = [("bare", BARE), ("picker", PICKER)]
    if options.redis:
        services.append(("picker with Redis", (*PICKER, "--redis", options.redis)))
    for name, command in services * options.rounds:
        async with service(command) as (pid, port):
            await drive(port, WARM_UP, options.callers, options.prompt)
            before = cpu_seconds(pid)
            await drive(port, options.requests, options.callers, options.prompt)
            spent = 1000 * (cpu_seconds(pid) - before) / options.requests
        print(f"| {name} | {options.prompt:,} B | {spent:.2f} |", flush=True)
    for _ in range(2):
        spent = 1000 * await handle_alone(options.requests, options.callers, options.prompt) / options.requests
        print(f"| handlers | {options.prompt:,} B | {spent:.2f} |", flush=True)


def main() -> None:
    """Print CPU time for each service."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=400, help="number of requests to each service")
    parser.add_argument("--callers", type=int, default=8, help="number of requests in progress at a time")
    parser.add_argument("--prompt", type=int, default=8_000, help="length of a prompt in bytes")
    parser.add_argument("--rounds", type=int, default=2, help="number of turns of each service")
    parser.add_argument("--redis", default="", help="URL of a Redis for pickers' accounts")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        uvloop.run(serve_bare())
        return
    print(f"{processor()}; commit {commit()}; {options.requests} requests to each, {options.callers} at a time")
    print("| service | prompt | CPU, ms |\n|---|---|---|")
    uvloop.run(measure(options))


if __name__ == "__main__":
    main()
