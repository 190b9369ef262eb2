"""What calls used at all gateways that share a Redis: each writes the rows of its own ledger there.

The rows are absolute sums, written behind and again after Redis may have lost data. So an answer that is lost, or a row
that is written twice, counts nothing twice. The rows of a gateway that has gone stay; its file, if it has one, brings
them back where Redis has lost them. Only a process with a Redis imports this module.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from fairlead.errors import Unavailable
from gateway.usage import KEPT_DAYS, WRITE_SECONDS, UsageKey, UsageLedger
from serving.redis_access import drop_connections, in_time
from serving.usage_report import KEYS, UsageRow
from throttler.budget_script import BEAT, EPOCH

log = logging.getLogger(__name__)
T = TypeVar("T")
DAY = "{fairlead}:usage:"  # hash of a day: ledger and key -> sums, both as JSON
NAME = "{fairlead}:usage-ledger"  # of all ledgers together, for programs that ask several gateways
ANSWER_SECONDS = 2.0
ROWS = 500  # in one message
# Processes that share a file write the same rows: the one with more calls is the later one.
# KEYS: a day. ARGV: seconds to keep the day, then fields and sums.
WRITE = """
for i = 2, #ARGV, 2 do
  local known = redis.call('HGET', KEYS[1], ARGV[i])
  local calls = known and tonumber(string.match(known, '%d+')) or -1
  if calls < tonumber(string.match(ARGV[i + 1], '%d+')) then redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
"""


class SharedUsage:
    """The rows of all gateways' ledgers; `ledger` is this one's."""

    def __init__(self, redis: Redis, ledger: UsageLedger) -> None:
        self.name = ledger.name
        self._redis = redis
        self._ledger = ledger
        self._epoch: bytes | None = None
        self._changed: dict[UsageKey, None] = {}  # rows that Redis lacks
        self._publishing = asyncio.Lock()
        self._is_away = False  # Redis is out of reach, and the log says so
        ledger.written = self._note

    async def rows(self, since: str) -> Sequence[UsageRow]:
        """Return what was used at all gateways from the day `since` on; raise Unavailable without Redis.

        Also raises sqlite3.Error. Several ledgers may have rows of one key.
        """
        try:
            await self._publish()
            # After a loss of data the first gateway that is asked writes the name that all know.
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.set(NAME, self.name, nx=True)
            pipeline.get(NAME)
            days = [day for day in _days() if day >= since]
            for day in days:
                pipeline.hgetall(DAY + day)
            _, name, *found = await self._answer(pipeline.execute())
        except (RedisError, OSError, TimeoutError) as error:
            await drop_connections(self._redis)
            raise Unavailable(f"the usage of all gateways is in Redis, which is out of reach: {error!r}") from error
        self.name = name.decode()
        return [
            UsageRow(day, *json.loads(field)[1:], *json.loads(sums))
            for day, rows in zip(days, found, strict=True)
            for field, sums in sorted(rows.items())
        ]

    async def run(self) -> None:
        """Keep the ledger, and write its rows, until cancelled; all of them at the end, if Redis answers."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._ledger.run())
                tasks.create_task(self._publish_for_ever())
        finally:
            with suppress(RedisError, OSError, TimeoutError):
                await self._publish()
            await self._redis.aclose()

    async def _publish_for_ever(self) -> None:
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            try:
                await self._publish()
                self._is_away = False
            except (RedisError, OSError, TimeoutError) as error:
                if not self._is_away:
                    log.warning("usage is not shared", extra={"error": repr(error)})
                self._is_away = True
                await drop_connections(self._redis)

    async def _publish(self) -> None:
        """Write the rows that changed, or all if Redis may have lost some; raises RedisError, OSError, TimeoutError."""
        async with self._publishing:
            epoch, _ = await self._answer(self._redis.eval(BEAT, 1, EPOCH, self._ledger.name, 0))
            knows_all, self._epoch = epoch == self._epoch, None
            await self._ledger.store()
            changed, self._changed = self._changed, {}
            rows = await (self._ledger.rows_of(changed) if knows_all else self._ledger.rows(""))
            for day, of_day in _by_day(rows):
                entries = chain.from_iterable(map(self._entry, of_day))
                await self._answer(self._redis.eval(WRITE, 1, DAY + day, KEPT_DAYS * 86_400, *entries))
            self._epoch = epoch

    def _note(self, keys: Iterable[UsageKey]) -> None:
        self._changed.update(dict.fromkeys(keys))

    def _entry(self, row: UsageRow) -> tuple[str, str]:
        key, sums = row[1 : len(KEYS)], row[len(KEYS) :]
        return json.dumps([self._ledger.name, *key]), json.dumps(sums)

    async def _answer(self, answer: Awaitable[T]) -> T:
        return await in_time(answer, ANSWER_SECONDS)


def _days() -> Iterator[str]:
    """Yield the days that are kept, and tomorrow, where another gateway's clock may be."""
    today = datetime.now(UTC).date()
    return ((today - timedelta(days=ago)).isoformat() for ago in range(KEPT_DAYS, -2, -1))


def _by_day(rows: Iterable[UsageRow]) -> Iterator[tuple[str, Sequence[UsageRow]]]:
    """Yield rows of one day, at most ROWS, with the day."""
    days: dict[str, list[UsageRow]] = {}
    for row in rows:
        days.setdefault(row.day, []).append(row)
    for day, of_day in days.items():
        left = iter(of_day)
        while chunk := list(islice(left, ROWS)):
            yield day, chunk
