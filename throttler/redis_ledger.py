"""The ledger of budgets in Redis; the rules are in `throttler/budget_script.py`."""

import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from serving.redis_access import drop_connections, follow_channel, in_time
from throttler import budget_script as script
from throttler.budget_leases import BEAT_SECONDS, LedgerLost, LedgerUnreachable
from throttler.core.budget import BudgetAccount
from throttler.core.budget_ledger import PARTS, BudgetReply, BudgetRequest

SETTLE_SECONDS = 3.0  # after a loss of data no new lease is granted: in this time all processes write what they know
ANSWER_SECONDS = 0.5
LOST = -1
RESTORED = 500  # accounts in one message


class RedisLedger:
    """One process' link to the ledger; see Ledger."""

    def __init__(self, redis: Redis, settle_seconds: float = SETTLE_SECONDS) -> None:
        self.name = secrets.token_hex(8)
        self._redis = redis
        self._settle_ms = round(settle_seconds * 1000)
        self._epoch: bytes | None = None

    async def ask(self, requests: Sequence[BudgetRequest]) -> Sequence[BudgetReply]:
        if self._epoch is None or not requests:
            epoch, _ = await self._in_time(self._redis.eval(script.BEAT, 1, script.EPOCH, self.name, self._settle_ms))
            known, self._epoch = self._epoch, epoch
            if known not in (None, epoch):
                raise LedgerLost
        replies = await self._ask(requests)
        if any(reply[0] == LOST for reply in replies):
            self._epoch = None
            raise LedgerLost
        return [_reply(reply) for reply in replies]

    async def restore(self, known: Iterator[tuple[BudgetRequest, dict[str, str]]]) -> None:
        self._epoch = None
        await self.ask(())
        while chunk := [each for each, _ in zip(known, range(RESTORED), strict=False)]:
            pipeline = self._redis.pipeline(transaction=False)
            for request, entries in chunk:
                if entries:
                    keep = _keep_ms(request.account)
                    pipeline.eval(
                        script.RESTORE, 1, script.BUDGET + request.account.key, keep, *chain(*entries.items())
                    )
            await self._in_time(pipeline.execute())
            await self._ask([request for request, _ in chunk])

    async def forget(self, keys: Sequence[str]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.hdel(script.BUDGET + key, self.name)
        await self._in_time(pipeline.execute())

    async def listen(self, recall: Callable[[str], None]) -> None:
        def receive(data: bytes) -> None:
            process, _, key = data.decode(errors="replace").partition(" ")
            if process != self.name:
                recall(key)

        await follow_channel(
            self._redis, script.RECALLS, receive, beat_seconds=BEAT_SECONDS, answer_seconds=ANSWER_SECONDS
        )

    async def close(self) -> None:
        await self._redis.aclose()

    async def _ask(self, requests: Sequence[BudgetRequest]) -> list[Any]:
        if not requests:
            return []
        pipeline = self._redis.pipeline(transaction=False)
        for account, first, entry, need, _ in requests:
            version, at, held, slots = entry.text().split(";")
            figures = (self.name, account.limit, first, need, _keep_ms(account), self._epoch or b"")
            rules = (self._settle_ms, PARTS, script.RECALLS, account.key)
            pipeline.eval(
                script.ASK, 2, script.BUDGET + account.key, script.EPOCH, *figures, *rules, version, at, held, slots
            )  # fmt: skip
        replies: list[Any] = await self._in_time(pipeline.execute())
        return replies

    async def _in_time(self, answer: Awaitable[Any]) -> Any:
        try:
            return await in_time(answer, ANSWER_SECONDS)
        except (RedisError, OSError, TimeoutError) as error:
            await drop_connections(self._redis)
            raise LedgerUnreachable(repr(error)) from error


def _keep_ms(account: BudgetAccount) -> int:
    return round(2000 * account.window.seconds)


def _reply(reply: list[Any]) -> BudgetReply:
    granted, recalled, settles, others = reply
    names = zip(others[::2], others[1::2], strict=True)
    return BudgetReply(
        int(granted), bool(recalled), {name.decode(): entry.decode() for name, entry in names}, settles / 1000
    )
