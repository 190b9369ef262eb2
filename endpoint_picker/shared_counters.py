"""The counters of clients' service that several pickers of a pool keep in common, in Redis.

While Redis is away a picker goes on with its own copy; what it has changed meanwhile reaches the others afterwards. A
deposed leader's changes count like all others, because it has placed the requests: there are no epochs to compare.
Only a process with a Redis imports this module: Redis' client is a third of the work of a start.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from endpoint_picker.core.service_counters import ServiceCounters
from endpoint_picker.counter_script import EXCHANGE
from serving.bounded_client_map import MOST_IDLE
from serving.redis_access import drop_connections

log = logging.getLogger(__name__)
EXCHANGE_SECONDS = 0.1
CALL_SECONDS = 0.5
MOST_AT_ONCE = 1000  # accounts in one message, so that no exchange keeps Redis from others for long
KEPT_SECONDS = 24 * 60 * 60  # after the last exchange of any picker


class SharedCounters:
    """Exchanges what changes in `counters` with the other pickers of the group `name`."""

    def __init__(self, redis: Redis, name: str, counters: ServiceCounters) -> None:
        self.is_current = False  # whether the last exchange succeeded
        self._redis = redis
        self._counters = counters
        self._me = uuid.uuid4().hex
        prefix = f"{{fairlead:{name}:counters}}"  # in braces, so that all keys are on one node of a cluster
        self._keys = [f"{prefix}:{part}" for part in ("service", "changed", "version", "origin", f"sent:{self._me}")]
        self._exchange = redis.register_script(EXCHANGE)
        self._origin = ""
        self._version = 0
        self._number = 1  # of the next batch that is not confirmed
        self._was_away = False

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Exchange within the context, and once at its end; a mistake cancels it and is raised in an ExceptionGroup."""
        async with asyncio.TaskGroup() as tasks:
            exchanging = tasks.create_task(self._exchange_for_ever())
            try:
                yield
            finally:
                exchanging.cancel()
        with suppress(RedisError, OSError, TimeoutError):
            await self.exchange()
        await self._redis.aclose()

    async def _exchange_for_ever(self) -> None:
        while True:
            try:
                await self.exchange()
            except (RedisError, OSError, TimeoutError) as error:
                self.is_current = False
                if not self._was_away:
                    log.warning(
                        "Redis is away: the accounts of clients are this picker's own", extra={"error": repr(error)}
                    )
                self._was_away = True
                await drop_connections(self._redis)
            await asyncio.sleep(EXCHANGE_SECONDS)

    async def exchange(self) -> None:
        """Send what has changed here, receive what has elsewhere; raises RedisError, OSError, TimeoutError."""
        while not await self._exchange_once():
            pass
        if self._was_away:
            log.warning("Redis is back: the accounts of clients are those of all pickers")
        self.is_current, self._was_away = True, False

    async def _exchange_once(self) -> bool:
        """Exchange one message; return whether all is exchanged."""
        changes, number = self._counters.begin(MOST_AT_ONCE), self._number
        if not changes:  # what changes before it is confirmed is of another batch
            self._number += 1
        given = [figure for account, change in changes.items() for figure in (account, *change)]
        known = (self._origin, self._version, f"{self._me}:{number}", number)
        async with asyncio.timeout(CALL_SECONDS):
            answer: list[Any] = await self._exchange(
                keys=self._keys, args=[*known, MOST_IDLE, MOST_AT_ONCE, KEPT_SECONDS, *given]
            )
        origin, *told = [each.decode() for each in answer]
        if self._origin and origin != self._origin:
            log.warning("Redis has lost the accounts of clients: each picker sends what it knows")
            self._origin, self._version = origin, 0
            self._counters.restore()
            return False
        self._origin, self._number = origin, number + 1
        version, *told = told
        counters = list(zip(told[::2], map(int, told[1::2]), strict=True))
        is_all = len(counters) - len(changes) < MOST_AT_ONCE
        self._version = int(version)
        self._counters.end(counters)
        return is_all and len(changes) < MOST_AT_ONCE
