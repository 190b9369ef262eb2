"""Leadership among several schedulers, or several endpoint pickers, by a lease in Redis.

Only a process with a Redis imports this module: Redis' client is a third of the work of a scheduler's start.
"""

import asyncio
import logging
from collections.abc import Callable

from redis.asyncio import Redis
from redis.exceptions import RedisError

from global_scheduler.leadership import STANDBY
from serving.redis_access import drop_connections

log = logging.getLogger(__name__)
RENEWALS = 6  # per lease duration
CALL_SECONDS = 0.5

# KEYS lease, epoch; ARGV holder, milliseconds, the highest epoch known to the caller. The caller sends that epoch
# so that a Redis that lost its data never assigns an epoch twice.
ACQUIRE = """
local holder = redis.call('GET', KEYS[1])
local epoch = tonumber(redis.call('GET', KEYS[2]) or '0')
local known = tonumber(ARGV[3])
if holder and holder ~= ARGV[1] then return {0, epoch} end
if not holder or epoch < known then
  epoch = math.max(epoch, known) + 1
  redis.call('SET', KEYS[2], epoch)
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, epoch}
"""
RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"


class LeaderLease:
    """Leadership of the group `name` by a lease in Redis. While Redis is unreachable, the leader stays the leader.

    The lease of a leader that crashes passes on after at most 7/6 of `seconds`; one that stops in order gives it up.
    """

    def __init__(self, redis: Redis, name: str, holder: str, seconds: float) -> None:
        self.epoch = STANDBY
        self._known = 0
        self._lease_key, self._epoch_key = f"fairlead:{name}:lease", f"fairlead:{name}:epoch"
        self._holder = holder
        self._seconds = seconds
        self._redis = redis
        self._acquire = self._redis.register_script(ACQUIRE)
        self._release = self._redis.register_script(RELEASE)
        self._reachable = True

    def observe_epoch(self, epoch: int) -> None:
        self._known = max(self._known, epoch)

    async def run(self, changed: Callable[[], None]) -> None:
        try:
            while True:
                before = self.epoch
                await self._renew()
                if self.epoch != before:
                    log.warning("leads" if self.epoch else "stands by", extra={"epoch": self.epoch})
                    changed()
                await asyncio.sleep(self._seconds / RENEWALS)
        finally:
            await self._end()

    async def _renew(self) -> None:
        arguments = (self._holder, round(self._seconds * 1000), max(self._known, self.epoch))
        try:
            async with asyncio.timeout(CALL_SECONDS):
                held, epoch = await self._acquire(keys=(self._lease_key, self._epoch_key), args=arguments)
        except (RedisError, OSError, TimeoutError) as error:
            if self._reachable:
                log.warning("Redis is away", extra={"error": repr(error), "epoch": self.epoch})
            self._reachable = False
            await drop_connections(self._redis)
            return
        if not self._reachable:
            log.warning("Redis is back")
        self._reachable = True
        self.observe_epoch(epoch)
        self.epoch = epoch if held else STANDBY

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._release(keys=(self._lease_key,), args=(self._holder,))
        except (RedisError, OSError, TimeoutError) as error:
            log.warning("the lease was not released", extra={"error": repr(error)})
        await self._redis.aclose()
