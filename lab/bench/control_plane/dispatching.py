"""The time that a dispatch request adds to a call: the time of a decision over the network at a given rate."""

import asyncio
import random
import time
from dataclasses import dataclass

from cli.stack import Stack
from fairlead.v1 import scheduler_pb2
from gateway.upstream.cluster import Cluster
from serving.blocks import DIGEST_BYTES

BLOCK = 16
SYSTEM_BLOCKS = 64
CLIENTS = 100


@dataclass(frozen=True, slots=True)
class Rate:
    """The number of decisions per second, and the duration in seconds."""

    per_second: int
    seconds: float
    prompt_tokens: int


async def latencies(stack: Stack, rate: Rate) -> list[float]:
    """Return the seconds of each decision, sorted. Arrivals are random, and independent of earlier answers."""
    changed = asyncio.Event()
    cluster = Cluster([stack.scheduler], stack.secret, changed.set)
    running = asyncio.create_task(cluster.run())
    while not len(cluster.members):
        changed.clear()
        await changed.wait()
    model = next(iter(cluster.members.pools()))
    took: list[float] = []
    dice = random.Random(1)
    system = dice.randbytes(SYSTEM_BLOCKS * DIGEST_BYTES)

    async def decide(number: int) -> None:
        digests = system + dice.randbytes(rate.prompt_tokens // BLOCK * DIGEST_BYTES - len(system))
        request = scheduler_pb2.DispatchRequest(
            request_id=str(number),
            attempt=1,
            client=f"client {number % CLIENTS}",
            model=model,
            digests=digests,
            prompt_tokens=rate.prompt_tokens,
            weight=1.0,
        )
        began = time.perf_counter()
        await cluster.place(request)
        took.append(time.perf_counter() - began)
        cluster.withdraw(request.request_id, 1)

    async with asyncio.TaskGroup() as tasks:
        for number in range(int(rate.per_second * rate.seconds)):
            tasks.create_task(decide(number))
            await asyncio.sleep(dice.expovariate(rate.per_second))
    running.cancel()
    await asyncio.wait([running])
    await cluster.close()
    return sorted(took)
