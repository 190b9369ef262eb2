"""One gateway process of the burst test: `python -m tests.throttler.burst URL LIMIT CALLS`.

Says "ready" when four gateways share the limit, waits for a line, makes all CALLS of one user at once while the pool is
overloaded, and says how many were let through and how many commands it sent.
"""

import asyncio
import sys
import time

from tests.throttler.shared import on_redis
from throttler.core.profiles import Limits, Profiles
from throttler.redis_store import RedisStore

PATIENCE = 60.0  # this is about exact limits: a busy machine is not a Redis that is away


async def main(url: str, limit: int, calls: int) -> None:
    profiles = Profiles(limits=Limits(user_per_minute=limit, app_per_minute=1_000_000))
    async with on_redis(url, 1, profiles, 60.0, others=3, answer_seconds=PATIENCE) as [gateway]:
        store = gateway.store
        assert isinstance(store, RedisStore)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        before, started = store.commands, time.perf_counter()
        admitted = sum(await asyncio.gather(*[gateway.admits() for _ in range(calls)]))
        seconds = time.perf_counter() - started
        print(admitted, store.commands - before, f"{seconds:.3f}", store.degraded, flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
