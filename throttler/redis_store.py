"""Limits shared by gateways through Redis, without a round trip per request; see `throttler.core.leased_quota`.

`throttler.core.lease_exchange` decides what is asked when; this module carries it to Redis. One loop sends all
commands: everything that is due since the last exchange goes out as one pipeline. When Redis does not answer in time,
the gateway at once counts by itself (degraded) and logs an error. When Redis answers again, gateways first report the
arrivals that they counted and then, after SETTLE_SECONDS, use leases as before.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from serving.redis_access import drop_connections
from throttler import lease_script as script
from throttler.core.expectations import Expectations
from throttler.core.lease_exchange import LeaseExchange
from throttler.core.leased_quota import RECALL_AGAIN, LeasedQuota, LeaseReply, LeaseRequest
from throttler.core.quota import QuotaAccount, QuotaDemand
from throttler.core.windows import Counts
from throttler.redis_expectations import exchange_for_ever

log = logging.getLogger(__name__)
T = TypeVar("T")
ANSWER_SECONDS = 0.25  # a call waits no longer than this for a lease
SYNC_SECONDS = 0.2  # between reports for which no call waits
BEAT_SECONDS = 1.0  # between heartbeats
SETTLE_SECONDS = 3.0  # time in which all gateways reach Redis again and report their counts
RECALL_SECONDS = 0.02  # time in which other gateways give back capacity after a recall
MAX_DIGITS = 19  # in a limit
CLIPPED = 128  # characters of a message that the log repeats
REPORTS = 1000  # accounts per pipeline when all accounts are reported


class RedisStore:
    """One gateway's link to the shared state: its leases, and the expectations that gateways exchange.

    `window` counts the arrivals at this gateway.
    """

    def __init__(
        self,
        redis: Redis,
        leases: LeasedQuota,
        window: Counts,
        expectations: Expectations,
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
        self._exchange = LeaseExchange(leases, window, settle_seconds)
        self._expectations = expectations
        self._window_ms = round(window_seconds * 1000)
        self._beat_seconds = beat_seconds
        self._answer_seconds = answer_seconds
        self._wake = asyncio.Event()
        self._waiting: dict[str, asyncio.Future[None]] = {}  # by key of the account; done when more was requested
        self._beat_at = 0.0
        self._epoch: bytes | None = None
        self._is_away = False  # Redis is out of reach, and the log says so
        self._scripts: tuple[str, str] | None = None  # digests of BEAT and ASK, after they were loaded into Redis

    @property
    def degraded(self) -> bool:
        """Whether this gateway now counts by itself, without the shared state."""
        return self._exchange.degraded

    @property
    def gateways(self) -> int:
        """The number of gateways that share the limits, as Redis last reported it."""
        return self._exchange.gateways

    async def lease(self, demand: QuotaDemand) -> None:
        """Request what `demand` lacks; return after any answer about the account, or at once while degraded."""
        if self._exchange.degraded:
            return
        key = demand.account.key
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
            self._exchange.want(demand)
            self._wake.set()
        await asyncio.shield(waiting)

    async def run(self) -> None:
        """See Store."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._converse())
                tasks.create_task(self._give_back())
                tasks.create_task(exchange_for_ever(self._redis, self.name, self._expectations))
        finally:
            await self._redis.aclose()

    async def _converse(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(SYNC_SECONDS, self._beat_seconds)):
                    await self._wake.wait()
            self._wake.clear()
            try:
                if time.monotonic() >= self._beat_at:
                    self._beat_at = time.monotonic() + self._beat_seconds
                    await self._beat()
                await self._ask()
            except (RedisError, OSError, TimeoutError) as error:
                self._scripts = None
                self._degrade(repr(error))
                await drop_connections(self._redis)

    async def _beat(self) -> None:
        if self._scripts is None:
            beat = await self._in_time(self._redis.script_load(script.CLOCK + script.BEAT))
            self._scripts = beat, await self._in_time(self._redis.script_load(script.CLOCK + script.ASK))
        arguments = (script.GATEWAYS, script.JOINED, script.EPOCH, self.name, self._window_ms)
        gateways, epoch = await self._in_time(self._redis.evalsha(self._scripts[0], 3, *arguments))
        self.commands += 1
        if self._epoch not in (None, epoch):
            self._degrade("Redis has lost its data")
        self._epoch = epoch
        reports = self._exchange.heartbeat_answered(gateways, time.monotonic())
        for start in range(0, len(reports), REPORTS):
            await self._send(reports[start : start + REPORTS])
        if self._exchange.settle(time.monotonic()):
            self._is_away = False
            self.changed.set()
            log.info("limits are shared", extra={"gateways": self._exchange.gateways})

    async def _ask(self) -> None:
        now = time.monotonic()
        requests = self._exchange.begin(now)
        if not requests:
            return
        end = self._exchange.end(requests, await self._send(requests), now, time.monotonic())
        for key in end.held:
            asyncio.get_running_loop().call_later(RECALL_SECONDS, self._try_again, key)
        for key in end.settled:
            self._release(key)

    def _try_again(self, key: str) -> None:
        self._exchange.try_again(key)
        self._wake.set()

    async def _send(self, requests: list[LeaseRequest]) -> list[LeaseReply]:
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
                self._exchange.gateways,
                round(self._window_ms * RECALL_AGAIN),
            )
            pipeline.evalsha(
                self._scripts[1], 3, *keys, self.name, self._window_ms, *figures, script.RECALLS, account
            )  # fmt: skip
        self.commands += len(requests)
        return [LeaseReply(capacity, bool(recalled)) for capacity, recalled in await self._in_time(pipeline.execute())]

    async def _give_back(self) -> None:
        """Receive recalls, by which other gateways ask for unused capacity, until cancelled."""
        while True:
            try:
                async with self._redis.pubsub() as pubsub:
                    await self._in_time(pubsub.subscribe(script.RECALLS))
                    await self._listen(pubsub)
            except (RedisError, OSError, TimeoutError):
                await asyncio.sleep(self._beat_seconds)

    async def _listen(self, pubsub: PubSub) -> None:
        """Receive recalls; raises TimeoutError when the connection is half-open: its server answers no ping."""
        is_pinged = False
        while True:
            message = await pubsub.get_message(timeout=max(self._beat_seconds, self._answer_seconds))
            if message is not None:
                is_pinged = False
                if message["type"] == "message":
                    self._recall(message["data"].decode(errors="replace"))
            elif is_pinged:
                raise TimeoutError("no answer to a ping")
            else:
                is_pinged = True
                await self._in_time(pubsub.ping())

    def _recall(self, message: str) -> None:
        gateway, limit, key = [*message.split(" ", 2), "", ""][:3]
        if not (limit.isdecimal() and len(limit) <= MAX_DIGITS):
            log.warning("a recall cannot be read", extra={"recall": message[:CLIPPED]})
            return
        if gateway != self.name and self._exchange.recall(QuotaAccount(key, int(limit)), time.monotonic()):
            self._wake.set()

    def _degrade(self, reason: str) -> None:
        if not self._is_away:
            log.error("Redis is out of reach: this gateway counts by itself", extra={"reason": reason})
            self._is_away = True
        if not self._exchange.degraded:
            self.changed.set()
        self._exchange.degrade()
        for key in list(self._waiting):
            self._release(key)

    def _release(self, key: str) -> None:
        """Let the calls decide again that wait for a lease of the account."""
        waiting = self._waiting.pop(key)
        if not waiting.done():
            waiting.set_result(None)

    async def _in_time(self, answer: Awaitable[T]) -> T:
        """Return the result of `answer`; raise TimeoutError after `answer_seconds`, pauses of this process excepted."""
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(answer)
        try:
            while True:
                started = loop.time()
                done, _ = await asyncio.wait([task], timeout=self._answer_seconds)
                if done:
                    return task.result()
                if loop.time() - started < 1.5 * self._answer_seconds:
                    raise TimeoutError(f"no answer within {self._answer_seconds} s")
        finally:
            task.add_done_callback(_look_at)
            task.cancel()


def _look_at(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of an abandoned task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
