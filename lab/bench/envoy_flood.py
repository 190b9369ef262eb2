"""How long a light user waits for its first token beside a flooder, behind Envoy alone and with Fairlead's services.

    python -m lab.bench.envoy_flood [--runs 3] [--calls 30]

Two fake engines run 4 requests each, at 4 ms for a token. The flooder keeps 48 calls of 20 tokens open; the light user
makes one call of 2 tokens after the other. Envoy stands before the engines alone, with the endpoint picker and the rate
limit service (whose limits are not reached), and with both while all callers have one name.

Tokens that the flooder gets while a call of the light user waits are the gap in service. They depend on the order in
which calls are served and not on how busy the machine is, as seconds do.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from cli.envoy_stack import ENVOY_SERVES, JSON_LINES, START_SECONDS, EnvoyStack
from cli.service_process import ServiceProcess
from lab.bench.envoy import call, envoy_stack, free_port
from lab.bench.machine import commit, processor

RUNNING, TOKEN_SECONDS = 4, 0.004
FLOOD, TOKENS = 48, 20
PROMPT = "word " * 30
AGAIN_SECONDS = 0.1  # until a call that was refused is made again
ROUTER = "envoy.filters.http.router"


class Wait(NamedTuple):
    """One call of the light user: its time to the first token, and the flooder's tokens in that time."""

    seconds: float
    overtaking_tokens: int


def body(tokens: int, number: int) -> bytes:
    """Return a streamed completion's request with a prompt of its own."""
    return json.dumps({"prompt": f"{number} {PROMPT}", "max_tokens": tokens, "stream": True}).encode()


async def answered(port: int, request: bytes, user: str) -> float:
    """Make a call until it is answered, and return the seconds from the first try to the first token.

    On a busy machine the rate limit service may not answer Envoy within a second, which then answers with 500.
    """
    began = time.monotonic()
    while True:
        tried = time.monotonic()
        try:
            return tried - began + await call(port, request, user)
        except RuntimeError:
            await asyncio.sleep(AGAIN_SECONDS)


async def waits(port: int, calls: int, flooder: str, light: str) -> list[Wait]:
    """Return how each of the light user's calls waits while the flooder calls."""
    numbers, ended = itertools.count(), 0

    async def flood() -> None:
        nonlocal ended
        while True:
            await answered(port, body(TOKENS, next(numbers)), flooder)
            ended += 1

    async def wait() -> Wait:
        before = ended
        seconds = await answered(port, body(2, 0), light)
        return Wait(seconds, (ended - before) * TOKENS)

    flooding = [asyncio.create_task(flood()) for _ in range(FLOOD)]
    for _ in range(2):  # until the queue has its length
        await wait()
    found = [await wait() for _ in range(calls)]
    for task in flooding:
        task.cancel()
    await asyncio.wait(flooding)
    return found


def start_envoy_alone(stack: EnvoyStack, folder: Path) -> int:
    """Start another Envoy before the engines of `stack`, which has no filter but the router; return its port."""
    config = yaml.safe_load((folder / "envoy.yaml").read_text())
    [listener] = config["static_resources"]["listeners"]
    port = listener["address"]["socket_address"]["port_value"] = free_port()
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"] = [each for each in manager["http_filters"] if each["name"] == ROUTER]
    path = folder / "alone.yaml"
    path.write_text(yaml.safe_dump(config))
    flags = ["--disable-hot-restart", "--concurrency", "1", "--log-format", JSON_LINES, "--config-path", str(path)]
    envoy = ServiceProcess("envoy-alone", "envoy._main", flags, {}, folder / "alone.log")
    stack.processes.append(envoy)
    envoy.wait_for(ENVOY_SERVES, time.monotonic() + START_SECONDS)
    return port


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the 50th and the 99th percentile."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


def main() -> None:
    """Print a line for each system and run, and one for all runs of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs of each system, which take turns")
    parser.add_argument("--calls", type=int, default=30, help="number of the light user's calls in a run")
    options = parser.parse_args()
    print(f"{processor()}; commit {commit()}; {options.calls} calls of the light user in a run")
    print("| system | run | first token, p50, s | p99, s | gap, p50, tokens | p99, tokens |\n|---|---|---|---|---|---|")
    engine = ["--running", str(RUNNING), "--token-seconds", str(TOKEN_SECONDS)]
    with envoy_stack(engine, ["--max-running", str(RUNNING)]) as (stack, port, folder):
        alone = start_envoy_alone(stack, folder)
        systems = (
            ("Envoy alone", alone, "flooder", "light"),
            ("picker and limiter, one name for all", port, "everybody", "everybody"),
            ("picker and limiter", port, "flooder", "light"),
        )
        found: dict[str, list[Wait]] = {name: [] for name, *_ in systems}
        for run in range(1, options.runs + 1):
            for name, to, flooder, light in systems:
                of_run = asyncio.run(waits(to, options.calls, flooder, light))
                found[name] += of_run
                print(row(name, str(run), of_run), flush=True)
    for name, of_all in found.items():
        print(row(name, "all", of_all))


def row(name: str, run: str, found: Sequence[Wait]) -> str:
    """Return a line of the table."""
    seconds, tokens = (percentiles(values) for values in zip(*found, strict=True))
    return f"| {name} | {run} | {seconds[0]:.2f} | {seconds[1]:.2f} | {tokens[0]:.0f} | {tokens[1]:.0f} |"


if __name__ == "__main__":
    main()
