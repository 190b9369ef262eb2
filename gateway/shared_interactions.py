"""Interactions that gateways share through a channel of Redis, which keeps nothing.

A message is sent at most every SEND_SECONDS, so that calls wait for none. While Redis is out of reach each gateway
knows what it was asked itself. The throttler's heartbeats use the same client: they make it leave a Redis that is no
longer the master, which would accept a message that reaches nobody. Only a process with a Redis imports this module:
Redis' client is a third of the work of a start.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from functools import partial

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.core.seen_calls import SeenCall, message_of, seen_calls
from serving.redis_access import drop_connections, follow_channel, in_time

log = logging.getLogger(__name__)
CHANNEL = "{fairlead}:interactions"  # "<gateway> <calls>"
SEND_SECONDS = 0.02
ANSWER_SECONDS = 1.0
RETRY_SECONDS = 1.0
MOST_WAITING = 4096  # calls of which the others are not told yet; the oldest are dropped


class SharedInteractions:
    """Tells the other gateways of this one's calls, and tells this one of theirs."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._name = secrets.token_hex(8)
        self._waiting: deque[SeenCall] = deque(maxlen=MOST_WAITING)
        self._wake = asyncio.Event()
        self._is_away = False  # Redis is out of reach, and the log says so

    def tell(self, call: SeenCall) -> None:
        """Tell the other gateways of a call, soon."""
        self._waiting.append(call)
        self._wake.set()

    async def run(self, learn: Callable[[SeenCall], None]) -> None:
        """Exchange calls until cancelled; `learn` is called with each call of another gateway."""
        receiving = follow_channel(
            self._redis,
            CHANNEL,
            partial(self._receive, learn),
            beat_seconds=RETRY_SECONDS,
            answer_seconds=ANSWER_SECONDS,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send_for_ever())
            tasks.create_task(receiving)

    async def _send_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(SEND_SECONDS)
            try:
                await self._send()
                if self._is_away:
                    log.info("interactions are shared")
                self._is_away = False
            except (RedisError, OSError, TimeoutError) as error:
                if not self._is_away:
                    log.warning("interactions are not shared", extra={"error": repr(error)})
                self._is_away = True
                await drop_connections(self._redis)
                await asyncio.sleep(RETRY_SECONDS)

    async def _send(self) -> None:
        """Send all calls that wait; raises RedisError, OSError or TimeoutError, and then they wait on."""
        calls = list(self._waiting)
        message = self._name.encode() + b" " + message_of(calls)
        await in_time(self._redis.publish(CHANNEL, message), ANSWER_SECONDS)
        for call in calls:
            if self._waiting and self._waiting[0] is call:
                self._waiting.popleft()
        if not self._waiting:
            self._wake.clear()

    def _receive(self, learn: Callable[[SeenCall], None], message: bytes) -> None:
        name, _, calls = message.partition(b" ")
        if name == self._name.encode():
            return
        try:
            for call in seen_calls(calls):
                learn(call)
        except ValueError as error:
            log.warning("another gateway's interactions cannot be read", extra={"error": str(error)})
