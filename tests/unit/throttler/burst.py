"""One gateway process of the burst test: `python -m tests.unit.throttler.burst URL LIMIT CALLS`.

Says "ready" when four gateways share the limit, waits for a line, makes all CALLS of one user at once while the pool is
overloaded, and says how many were let through and how many commands it sent.
"""

import asyncio
import sys

from tests.unit.throttler.shared import on_redis
from throttler.core.profiles import Profiles, RateLimits
from throttler.redis_store import RedisStore

WINDOW = 3600.0  # seconds, which the burst does not take on the busiest machine


async def main(url: str, limit: int, calls: int) -> None:
    profiles = Profiles(limits=RateLimits(user_per_minute=limit, app_per_minute=1_000_000))
    async with on_redis(url, 1, profiles, WINDOW, others=3) as [gateway]:
        store = gateway.store
        assert isinstance(store, RedisStore)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        before = store.commands
        admitted = sum(await asyncio.gather(*[gateway.admits() for _ in range(calls)]))
        print(admitted, store.commands - before, store.degraded, flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
