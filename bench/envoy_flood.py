"""How long a light user waits for its first token beside a flooder, behind Envoy with Fairlead's endpoint picker.

    python -m bench.envoy_flood [--runs 3] [--calls 10]

Two fake engines run 4 requests each, at 4 ms for a token. The flooder keeps 48 calls of 20 tokens open; the light user
makes one call of 2 tokens after the other. Both have names, or none, so that they count as one client.
"""

import argparse
import asyncio
import itertools
import json
import statistics

from bench.envoy import call, envoy_stack
from bench.machine import commit, processor

RUNNING, TOKEN_SECONDS = 4, 0.004
FLOOD = 48
PROMPT = "word " * 30


def body(tokens: int, number: int) -> bytes:
    """Return a streamed completion's request with a prompt of its own."""
    return json.dumps({"prompt": f"{number} {PROMPT}", "max_tokens": tokens, "stream": True}).encode()


async def light_users_seconds(port: int, calls: int, flooder: str, light: str) -> list[float]:
    """Return the seconds to the first token of each of the light user's calls while the flooder calls."""
    numbers = itertools.count()

    async def flood() -> None:
        while True:
            await call(port, body(20, next(numbers)), flooder)

    flooding = [asyncio.create_task(flood()) for _ in range(FLOOD)]
    for _ in range(2):  # until the queue has its length
        await call(port, body(2, 0), light)
    seconds = [await call(port, body(2, 0), light) for _ in range(calls)]
    for task in flooding:
        task.cancel()
    await asyncio.wait(flooding)
    return seconds


def main() -> None:
    """Print the median and the longest time to the first token of each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs with names, and as many without")
    parser.add_argument("--calls", type=int, default=10, help="calls of the light user in a run")
    options = parser.parse_args()
    print(f"{processor()}; commit {commit()}; {options.calls} calls of the light user in a run")
    print("| run | clients | median, s | longest, s |\n|---|---|---|---|")
    engine = ["--running", str(RUNNING), "--token-seconds", str(TOKEN_SECONDS)]
    with envoy_stack(engine, ["--endpoint-requests", str(RUNNING)]) as (_, port):
        for run in range(1, options.runs + 1):
            for clients, flooder, light in (("two", "flooder", "light"), ("one", "everybody", "everybody")):
                seconds = asyncio.run(light_users_seconds(port, options.calls, flooder, light))
                print(f"| {run} | {clients} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |", flush=True)


if __name__ == "__main__":
    main()
