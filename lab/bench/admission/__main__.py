"""Throttling: the cost of a decision, and the exactness of limits that several gateways share.

python -m lab.bench.admission [--calls 40000] [--windows 5]
"""

import argparse
import asyncio
import itertools
from dataclasses import replace
from functools import partial

from redis.asyncio import Redis

from lab.bench.admission.deciding import Cost, leased, measure, memory, per_request, redis_server
from lab.bench.admission.sharing import share
from lab.bench.machine import commit, processor
from throttler.redis_store import RedisStore

LIMIT = 600
USERS = (100, 100_000)
INGRESS = {"even": (1.0, 1.0, 1.0, 1.0), "skewed": (70.0, 15.0, 10.0, 5.0), "one only": (1.0, 0.0, 0.0, 0.0)}


async def decisions(url: str, calls: int) -> None:
    """Print the CPU time per decision of each store."""
    print(f"\nDecisions: limit {LIMIT}/min per user, overloaded, {calls:,} calls\n")
    print("| throttle | users | µs of CPU | Redis commands per call | admitted |")
    print("|---|---|---|---|---|")
    async with Redis.from_url(url) as link:
        for users in USERS:
            await link.flushall()
            _row("in memory", users, await measure(memory(LIMIT), users, calls, lambda: 0))
            for gateways in (1, 4):
                await link.flushall()
                async with leased(url, LIMIT, gateways) as (admits, stores):
                    cost = await measure(admits, users, calls, partial(_commands, stores))
                _row(f"leases, {gateways} gateways", users, cost)
            await link.flushall()
            cost = await measure(per_request(link, LIMIT), users, calls, lambda: 0)
            _row("a Lua call per request", users, replace(cost, commands=1.0))


def _commands(stores: list[RedisStore]) -> int:
    return sum(store.commands for store in stores)


def _row(name: str, users: int, cost: Cost) -> None:
    print(f"| {name} | {users:,} | {cost.micros:.1f} | {cost.commands:.4f} | {cost.admitted:,} |", flush=True)


def sharing(windows: int) -> None:
    """Print the exactness and the traffic of four gateways, in virtual time."""
    print(f"\nFour gateways, one user, {windows} windows, always overloaded\n")
    print("| limit/min | demand | ingress | commands per call | overshoot | refused wrongly |")
    print("|---|---|---|---|---|---|")
    for limit, demand in itertools.product((60, 600, 6000), (0.5, 0.8, 0.95, 1.5, 20.0)):
        for name, ingress in INGRESS.items():
            result = share(limit, demand, ingress, windows, seed=1)
            overshoot = max(0, result.most - limit)
            wrongly = f"{result.wrongly / result.calls:.3%}"
            commands = f"{result.commands / result.calls:.4f}"
            print(f"| {limit} | {demand:g} | {name} | {commands} | {overshoot} | {wrongly} |", flush=True)


def main() -> None:
    """Run the benchmark and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.admission", description=__doc__)
    parser.add_argument("--calls", type=int, default=40_000)
    parser.add_argument("--windows", type=int, default=5)
    args = parser.parse_args()
    print(f"{processor()}; commit {commit()}")
    with redis_server() as url:
        asyncio.run(decisions(url, args.calls))
    sharing(args.windows)


if __name__ == "__main__":
    main()
