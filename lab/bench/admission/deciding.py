"""CPU time per decision in one process: in memory, with leases on a real Redis, and with a Lua call per request."""

import asyncio
import contextlib
import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from serving.cost import WeightedTokens
from serving.redis_access import open_redis
from throttler import lease_script as script
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budgets import Budgets
from throttler.core.decider import Arrival, Decider, Permit
from throttler.core.expectations import Expectations
from throttler.core.interactions import Interactions
from throttler.core.leased_quota import JOINING, LeasedQuota
from throttler.core.oit import Oit
from throttler.core.pool_claims import PoolClaims
from throttler.core.profiles import Profiles, RateLimits
from throttler.core.throttle import Caller, ThrottleRule
from throttler.core.windows import LocalQuota
from throttler.redis_store import RedisStore
from throttler.store import LocalStore, Store
from throttler.throttler import Throttler

IN_FLIGHT = 32
WINDOW = 60.0
APP_LIMIT = 10_000_000
Decide = Callable[[int, str], Awaitable[bool]]  # number of the call, user -> admitted

# A sliding window per user and per app for the variant with one Lua call per request.
PER_REQUEST = (
    script.CLOCK
    + """
for i = 1, 2 do
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now - 60000)
  local count = redis.call('ZCARD', KEYS[i])
  if count >= tonumber(ARGV[i]) then return 0 end
  redis.call('ZADD', KEYS[i], now, ARGV[3])
  redis.call('PEXPIRE', KEYS[i], 60000)
end
return 1
"""
)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one decision: CPU microseconds and Redis commands."""

    micros: float  # of this process's CPU
    commands: float
    admitted: int


def memory(limit: int) -> Decide:
    """Return the decisions of one gateway without Redis."""
    profiles = _profiles(limit)
    throttler = _throttler(profiles, Oit(profiles, LocalQuota()), Expectations(profiles), LocalStore())

    async def admits(_: int, user: str) -> bool:
        return await _decide(throttler, user)

    return admits


@contextlib.asynccontextmanager
async def leased(url: str, limit: int, gateways: int) -> AsyncIterator[tuple[Decide, list[RedisStore]]]:
    """Yield the decisions of several gateways in this process, each with its own Redis connection, after they have
    joined."""
    members, links = list[tuple[Throttler, RedisStore, LeasedQuota]](), list[Redis]()
    profiles = _profiles(limit)
    for _ in range(gateways):
        leases, link = LeasedQuota(WINDOW), open_redis(url)
        throttle, expectations = Oit(profiles, leases), Expectations(profiles)
        store = RedisStore(link, leases, throttle.window, expectations, PoolClaims(), window_seconds=WINDOW)
        members.append((_throttler(profiles, throttle, expectations, store), store, leases))
        links.append(link)

    async def admits(number: int, user: str) -> bool:
        throttler, _, _ = members[number % gateways]
        return await _decide(throttler, user)

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(store.run()) for _, store, _ in members]
        while any(store.degraded or store.gateways < gateways for _, store, _ in members):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        for _, store, leases in members:
            leases.restore(time.monotonic() - JOINING * WINDOW)
            await links[0].zadd(script.JOINED, {store.name: 0})
        yield admits, [store for _, store, _ in members]
        for task in running:
            task.cancel()


def per_request(link: Redis, limit: int) -> Decide:
    """Return decisions that make one Lua call for each request."""
    lua = link.register_script(PER_REQUEST)
    numbers = itertools.count()

    async def admits(_: int, user: str) -> bool:
        return bool(await lua(["{u}" + user, "{u}app"], [limit, APP_LIMIT, next(numbers)]))

    return admits


async def measure(admits: Decide, users: int, calls: int, commands: Callable[[], int]) -> Cost:
    """Measure `calls` decisions, IN_FLIGHT at a time, over the users in turn."""
    numbers, admitted = itertools.count(), 0

    async def caller() -> None:
        nonlocal admitted
        while (number := next(numbers)) < calls:
            got = await admits(number // 7, f"tenant/user-{number % users}")
            admitted += got

    before, began = commands(), time.process_time()
    await asyncio.gather(*[caller() for _ in range(IN_FLIGHT)])
    micros = (time.process_time() - began) * 1e6 / calls
    return Cost(micros, (commands() - before) / calls, admitted)


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """Start a private Redis and yield its URL. Raises SystemExit when redis-server is not installed."""
    if shutil.which("redis-server") is None:
        raise SystemExit("this benchmark needs redis-server (apt-get install redis-server)")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "redis.sock"
        options = ["--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no", "--dir", folder]
        with subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL) as process:
            while not path.exists():
                time.sleep(0.01)
            yield f"unix://{path}"
            process.kill()


def _throttler(profiles: Profiles, throttle: ThrottleRule, expectations: Expectations, store: Store) -> Throttler:
    budgets = Budgets(profiles, BudgetAccounts(), WeightedTokens())
    decider = Decider(throttle, Interactions("bench", profiles), expectations, budgets)
    return Throttler(decider, store, lambda _: None)


async def _decide(throttler: Throttler, user: str) -> bool:
    arrival = Arrival(Caller("tenant", user, "default"), overloaded=True)
    return isinstance(await throttler.decide(arrival), Permit)


def _profiles(limit: int) -> Profiles:
    return Profiles(limits=RateLimits(user_per_minute=limit, app_per_minute=APP_LIMIT))
