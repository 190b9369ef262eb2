"""A load generator: users with random arrivals at different rates; it prints each user's answers and waiting times.

An API key must permit the caller to name users.

Usage: load.py [ADDRESS] [--seconds 5] [--rates 1,2,8]   (calls per second, one user each)
"""

import argparse
import asyncio
import random
import time

import fairlead
from serving.statistics import percentile


async def user(client: fairlead.Client, rate: float, seconds: float, waits: list[float], failures: list[str]) -> None:
    """Ask `rate` times per second on average, without waiting for answers (an open loop)."""
    ends = time.monotonic() + seconds
    async with asyncio.TaskGroup() as calls:
        while time.monotonic() < ends:
            calls.create_task(call(client, waits, failures))
            await asyncio.sleep(random.expovariate(rate))


async def call(client: fairlead.Client, waits: list[float], failures: list[str]) -> None:
    """Make one call, and record the seconds until its first token, or its outcome."""
    began, waited = time.monotonic(), 0.0
    try:
        async for _ in client.stream(f"Question {random.randrange(1000)}:", max_tokens=16):
            waited = waited or time.monotonic() - began
        waits.append(waited)
    except fairlead.FairleadError as error:
        failures.append(error.outcome.name)


async def main() -> None:
    """Run all users, each with its own connection."""
    parser = argparse.ArgumentParser()
    parser.add_argument("address", nargs="?", default="127.0.0.1:7000")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rates", default="1,2,8")
    args = parser.parse_args()
    rates = [float(rate) for rate in args.rates.split(",")]
    waits: list[list[float]] = [[] for _ in rates]
    failures: list[list[str]] = [[] for _ in rates]
    clients = [
        fairlead.Client(args.address, user=f"user-{n}", retries=fairlead.Retries(attempts=0)) for n in range(len(rates))
    ]
    await asyncio.gather(*map(user, clients, rates, [args.seconds] * len(rates), waits, failures))
    for number, (rate, waited, failed) in enumerate(zip(rates, waits, failures, strict=True)):
        first = f"{percentile(waited, 50):.3f} s, p99 {percentile(waited, 99):.3f} s" if waited else "-"
        print(f"user-{number}: {rate:g}/s, {len(waited)} answered, first token p50 {first}, refused {len(failed)}")
    await asyncio.gather(*(client.close() for client in clients))


asyncio.run(main())
