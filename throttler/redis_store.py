"""Limits shared by gateways through Redis, without a round trip per request; see `throttler.core.leased_quota`.

`throttler.core.lease_loop` decides what is asked when; this module carries it to Redis. One loop sends all
commands: everything that is due since the last exchange goes out as one pipeline. When Redis does not answer in time,
the gateway at once counts by itself (degraded) and logs an error. When Redis answers again, gateways first report the
arrivals that they counted and then, after SETTLE_SECONDS, use leases as before.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Iterable, Sequence
from typing import TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from serving.redis_access import drop_connections, follow_channel, in_time
from throttler import lease_script as script
from throttler import redis_claims, redis_expectations
from throttler.core.expectations import Expectations
from throttler.core.lease_exchange import LeaseExchange
from throttler.core.lease_loop import ANSWER_SECONDS, BEAT_SECONDS, SETTLE_SECONDS, Heartbeat, LeaseLoop, Message
from throttler.core.leased_quota import RECALL_AGAIN, LeasedQuota, LeaseReply, LeaseRequest
from throttler.core.pool_claims import PoolClaims
from throttler.core.windows import Counts, QuotaAccount, QuotaDemand

log = logging.getLogger(__name__)
T = TypeVar("T")
SYNC_SECONDS = 0.2  # between reports for which no call waits
MAX_DIGITS = 19  # in a limit
CLIPPED = 128  # characters of a message that the log repeats


class RedisStore:
    """One gateway's link to the shared state: its leases, and the expectations and claims that gateways exchange.

    `window` counts the arrivals at this gateway. See Store.
    """

    def __init__(
        self,
        redis: Redis,
        leases: LeasedQuota,
        window: Counts,
        expectations: Expectations,
        claims: PoolClaims,
        *,
        window_seconds: float,
        beat_seconds: float = BEAT_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.name = secrets.token_hex(8)
        self.commands = 0  # number of commands sent to Redis so far
        self.changed = asyncio.Event()
        self._redis = redis
        self._leases = leases
        self._loop: LeaseLoop[asyncio.Future[None]] = LeaseLoop(
            LeaseExchange(leases, window, settle_seconds), beat_seconds
        )
        self._expectations = expectations
        self._claims = claims
        self._window_ms = round(window_seconds * 1000)
        self._beat_seconds = beat_seconds
        self._answer_seconds = answer_seconds
        self._wake = asyncio.Event()
        self._epoch: bytes | None = None
        self._is_away = False  # Redis is out of reach, and the log says so
        self._scripts: tuple[str, str] | None = None  # digests of BEAT and ASK, after they were loaded into Redis

    @property
    def degraded(self) -> bool:
        """Whether this gateway now counts by itself, without the shared state."""
        return self._leases.degraded

    @property
    def gateways(self) -> int:
        """The number of gateways that share the limits, as Redis last reported it."""
        return self._leases.gateways

    async def lease(self, demand: QuotaDemand) -> None:
        """Request what `demand` lacks; return after any answer about the account, or at once while degraded."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._loop.wait(demand, waiting):
            self._wake.set()
            await waiting

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._converse())
                tasks.create_task(self._follow_recalls())
                tasks.create_task(redis_expectations.exchange_for_ever(self._redis, self.name, self._expectations))
                tasks.create_task(redis_claims.exchange_for_ever(self._redis, self.name, self._claims))
        finally:
            await self._redis.aclose()

    async def _converse(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(SYNC_SECONDS, self._loop.next_deadline() - time.monotonic()))):
                    await self._wake.wait()
            self._wake.clear()
            try:
                if (message := self._loop.next_message(time.monotonic())) is not None:
                    await self._carry(message)
            except (RedisError, OSError, TimeoutError) as error:
                self._scripts = None
                self._degrade(repr(error))
                await drop_connections(self._redis)

    async def _carry(self, message: Message) -> None:
        """Send one message and apply its answer."""
        if isinstance(message, Heartbeat):
            gateways = await self._beat()
            self._loop.heartbeat_answered(gateways, time.monotonic())
        else:
            replies = await self._send(message)
            _release(self._loop.replied(message, replies, time.monotonic()))
        if self._loop.settle(time.monotonic()):
            self._is_away = False
            self.changed.set()
            log.info("limits are shared", extra={"gateways": self.gateways})

    async def _beat(self) -> int:
        """Return the number of gateways; count alone if Redis has lost its data."""
        if self._scripts is None:
            beat = await self._answer(self._redis.script_load(script.CLOCK + script.BEAT))
            self._scripts = beat, await self._answer(self._redis.script_load(script.CLOCK + script.ASK))
        arguments = (script.GATEWAYS, script.JOINED, script.EPOCH, self.name, self._window_ms)
        gateways, epoch = await self._answer(self._redis.evalsha(self._scripts[0], 3, *arguments))
        self.commands += 1
        if self._epoch not in (None, epoch):
            self._degrade("Redis has lost its data")
        self._epoch = epoch
        return int(gateways)

    async def _send(self, requests: Sequence[LeaseRequest]) -> list[LeaseReply]:
        assert self._scripts is not None, "only called after a beat"
        pipeline = self._redis.pipeline(transaction=False)
        for request in requests:
            account, limit = request.account
            keys = (script.ACCOUNT + account, script.JOINED, script.RECALLED + account)
            figures = (
                limit,
                request.held,
                request.used,
                request.more,
                self.gateways,
                round(self._window_ms * RECALL_AGAIN),
            )
            pipeline.evalsha(
                self._scripts[1], 3, *keys, self.name, self._window_ms, *figures, script.RECALLS, account
            )  # fmt: skip
        self.commands += len(requests)
        return [LeaseReply(capacity, bool(recalled)) for capacity, recalled in await self._answer(pipeline.execute())]

    async def _follow_recalls(self) -> None:
        await follow_channel(
            self._redis,
            script.RECALLS,
            self._recall,
            beat_seconds=self._beat_seconds,
            answer_seconds=self._answer_seconds,
        )

    def _recall(self, data: bytes) -> None:
        """Apply a recall, by which another gateway asks for unused capacity."""
        message = data.decode(errors="replace")
        gateway, limit, key = [*message.split(" ", 2), "", ""][:3]
        if not (limit.isdecimal() and len(limit) <= MAX_DIGITS):
            log.warning("a recall cannot be read", extra={"recall": message[:CLIPPED]})
            return
        if gateway != self.name and self._loop.recall(QuotaAccount(key, int(limit)), time.monotonic()):
            self._wake.set()

    def _degrade(self, reason: str) -> None:
        if not self._is_away:
            log.error("Redis is out of reach: this gateway counts by itself", extra={"reason": reason})
            self._is_away = True
        if not self.degraded:
            self.changed.set()
        _release(self._loop.degrade(time.monotonic()))

    async def _answer(self, answer: Awaitable[T]) -> T:
        return await in_time(answer, self._answer_seconds)


def _release(waiting: Iterable[asyncio.Future[None]]) -> None:
    """Let the calls decide again that wait for a lease."""
    for each in waiting:
        if not each.done():
            each.set_result(None)
