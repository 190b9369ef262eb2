"""Which of several schedulers decides: by a lease in Redis, or this one because it is alone.

Terms are numbered by fencing epochs, each higher than all before it. Two schedulers that both believe in their lease do
no harm: gateways follow the higher epoch and ignore the other (docs/adr/0006).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from redis.asyncio import Redis
from redis.exceptions import RedisError

log = logging.getLogger(__name__)
STANDBY = 0  # the epoch of a scheduler that does not lead
LEASE_KEY = "fairlead:scheduler:lease"
EPOCH_KEY = "fairlead:scheduler:epoch"
RENEWALS = 6  # in the time of a lease
CALL_SECONDS = 0.5

# KEYS lease, epoch; ARGV holder, milliseconds, the highest epoch known to the caller. An epoch is never given twice,
# even by a Redis that came back empty: whoever asks says what it has seen.
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


class Leadership(Protocol):
    """`epoch` is that of the present term, or STANDBY."""

    epoch: int

    def heard(self, epoch: int) -> None:
        """Somebody has seen this epoch."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Keep `epoch` true until cancelled; `changed` after each change."""


class SoleLeadership:
    """A single scheduler: it always leads. A restarted one goes on in the term that gateways have seen."""

    def __init__(self) -> None:
        self.epoch = 1

    def heard(self, epoch: int) -> None:
        """See Leadership."""
        self.epoch = max(self.epoch, epoch)

    async def run(self, changed: Callable[[], None]) -> None:
        """See Leadership."""
        await asyncio.Event().wait()


class LeaderLease:
    """Leads while it holds the lease. While Redis cannot be asked nothing changes: whoever led goes on.

    A leader that dies is followed after `seconds` and a sixth, one that ends in order at once.
    """

    def __init__(self, redis: Redis, holder: str, seconds: float) -> None:
        self.epoch = STANDBY
        self._known = 0
        self._holder = holder
        self._seconds = seconds
        self._redis = redis
        self._acquire = self._redis.register_script(ACQUIRE)
        self._release = self._redis.register_script(RELEASE)
        self._reachable = True

    def heard(self, epoch: int) -> None:
        """See Leadership."""
        self._known = max(self._known, epoch)

    async def run(self, changed: Callable[[], None]) -> None:
        """See Leadership."""
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
                held, epoch = await self._acquire(keys=(LEASE_KEY, EPOCH_KEY), args=arguments)
        except (RedisError, OSError, TimeoutError) as error:
            if self._reachable:
                log.warning("Redis is away", extra={"error": repr(error), "epoch": self.epoch})
            self._reachable = False
            return
        if not self._reachable:
            log.warning("Redis is back")
        self._reachable = True
        self.heard(epoch)
        self.epoch = epoch if held else STANDBY

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._release(keys=(LEASE_KEY,), args=(self._holder,))
        except (RedisError, OSError, TimeoutError) as error:
            log.warning("the lease was not released", extra={"error": repr(error)})
        await self._redis.aclose()
