"""What calls used, by day, tenant, user, app and model: the ledger for operators' accounts.

Ended calls are summed in memory and written behind, every second, to the file of the option `ledger`, which gateways
of one machine may share, or to memory without one. Days are those of UTC. A file that cannot be written (a full disk, a
lock) is tried again: calls go on. Callers may make up names, so that those beyond a number per day are summed as one.
"""

import asyncio
import logging
import operator
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple, Protocol

from serving.usage_report import UsageRow

log = logging.getLogger(__name__)
WRITE_SECONDS = 1.0
KEPT_DAYS, KEPT_DAYS_IN_MEMORY = 400, 31
# Users with an app that have rows of their own in a day.
MOST_NAMES, MOST_NAMES_IN_MEMORY = 100_000, 10_000
OTHERS = "(others)"
BUSY_SECONDS = 1.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger (name TEXT);
CREATE TABLE IF NOT EXISTS usage (
  day TEXT, tenant TEXT, user TEXT, app TEXT, model TEXT,
  calls INTEGER, prompt_tokens INTEGER, cached_tokens INTEGER, output_tokens INTEGER,
  micro_cost INTEGER, nano_money INTEGER, waited_us INTEGER, weight REAL,
  PRIMARY KEY (day, tenant, user, app, model)
);
"""
ADD = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
  calls = calls + excluded.calls, prompt_tokens = prompt_tokens + excluded.prompt_tokens,
  cached_tokens = cached_tokens + excluded.cached_tokens, output_tokens = output_tokens + excluded.output_tokens,
  micro_cost = micro_cost + excluded.micro_cost, nano_money = nano_money + excluded.nano_money,
  waited_us = waited_us + excluded.waited_us, weight = excluded.weight
"""


class UsageKey(NamedTuple):
    """Whose usage it is. `user` is empty for calls that name none; `day` is as 2026-11-26."""

    day: str
    tenant: str
    user: str
    app: str
    model: str


class UsageSums(NamedTuple):
    """Sums over calls that a worker began.

    Cost is in millionths of a unit, money in billionths, waiting in microseconds from a call's admission to its start;
    `weight` is the tenant's share in the fairness accounts, not a sum.
    """

    calls: int
    prompt_tokens: int  # cached ones included
    cached_tokens: int
    output_tokens: int
    micro_cost: int
    nano_money: int
    waited_us: int
    weight: float


class UsageSource(Protocol):
    """What operators read: rows of the ledger `name`; programs count those of one name once."""

    @property
    def name(self) -> str:
        """The name as of the last rows."""

    async def rows(self, since: str) -> Sequence[UsageRow]:
        """Return what was used from the day `since` on; raises sqlite3.Error or Unavailable."""


class UsageLedger:
    """The sums; raises sqlite3.Error if the file `path` is no such database. An empty path means memory."""

    def __init__(self, path: str) -> None:
        self._new: dict[UsageKey, UsageSums] = {}
        self._day = ""  # the latest
        self._names: set[tuple[str, str]] = set()  # (client, app) of that day
        self._most_names, self._kept_days = MOST_NAMES, KEPT_DAYS
        if not path:
            self._most_names, self._kept_days = MOST_NAMES_IN_MEMORY, KEPT_DAYS_IN_MEMORY
        self.written: Callable[[Iterable[UsageKey]], None] | None = None  # called after each write
        self._is_failing = False  # the last write failed, and the log says so
        self._one_write = asyncio.Lock()
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path or ":memory:", timeout=BUSY_SECONDS, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(SCHEMA)
        self._database.execute(f"SELECT {', '.join(UsageRow._fields)} FROM usage LIMIT 0")  # of another program
        with self._database:
            self._database.execute(
                "INSERT INTO ledger SELECT ? WHERE NOT EXISTS (SELECT * FROM ledger)", (secrets.token_hex(8),)
            )
        [(self.name,)] = self._database.execute("SELECT name FROM ledger LIMIT 1").fetchall()

    def add(self, client: str, app: str, model: str, at: float, sums: UsageSums) -> None:
        """Add a call that ended at `at`, in Unix seconds."""
        day = datetime.fromtimestamp(at, UTC).date().isoformat()
        if day > self._day:
            self._day = day
            self._names.clear()
        if (client, app) not in self._names:
            if len(self._names) >= self._most_names:
                client = app = OTHERS
            self._names.add((client, app))
        tenant, _, user = client.partition("/")
        self._add(UsageKey(day, tenant, user, app, model), sums)

    def _add(self, key: UsageKey, sums: UsageSums) -> None:
        if (before := self._new.get(key)) is not None:
            sums = UsageSums(*map(operator.add, before, sums))._replace(weight=sums.weight)
        self._new[key] = sums

    async def rows(self, since: str) -> Sequence[UsageRow]:
        """Return what was used and written from the day `since` on, in the order of the keys; raises sqlite3.Error."""
        await self.store()
        return await asyncio.to_thread(self._read, since)

    async def rows_of(self, keys: Iterable[UsageKey]) -> Sequence[UsageRow]:
        """Return the rows of these keys that are written; raises sqlite3.Error."""
        return await asyncio.to_thread(self._find, keys)

    async def run(self) -> None:
        """Write what was added until cancelled, and all of it at the end."""
        try:
            while True:
                await asyncio.sleep(WRITE_SECONDS)
                await self.store()
        finally:
            new, self._new = self._new, {}
            self._note_write(new, partial(self._write, new))

    async def store(self) -> None:
        """Write what was added; it is kept if that fails. A write that began is ended if its caller is cancelled."""
        async with self._one_write:  # what another write has taken may come back
            if not self._new:
                return
            new, self._new = self._new, {}
            writing = asyncio.ensure_future(asyncio.to_thread(self._write, new))
            try:
                await asyncio.wait([writing])
            finally:
                await asyncio.wait([writing])
                self._note_write(new, writing.result)

    def _note_write(self, new: Mapping[UsageKey, UsageSums], result: Callable[[], None]) -> None:
        """Tell of what is written; keep `new` for the next time if `result` says that it cannot be."""
        try:
            result()
            self._is_failing = False
            if self.written is not None:
                self.written(new)
        except sqlite3.Error as error:
            for key, sums in new.items():
                self._add(key, sums)
            if not self._is_failing:
                log.warning("usage cannot be written; it is kept and tried again", extra={"error": str(error)})
            self._is_failing = True

    def _write(self, new: dict[UsageKey, UsageSums]) -> None:
        with self._lock, self._database:
            self._database.executemany(ADD, map(operator.add, new, new.values()))
            if new:
                last = datetime.fromisoformat(max(new).day) - timedelta(days=self._kept_days)
                self._database.execute("DELETE FROM usage WHERE day < ?", (last.date().isoformat(),))

    def _read(self, since: str) -> list[UsageRow]:
        with self._lock:
            found = self._database.execute("SELECT * FROM usage WHERE day >= ? ORDER BY 1, 2, 3, 4, 5", (since,))
            return [UsageRow(*row) for row in found]

    def _find(self, keys: Iterable[UsageKey]) -> list[UsageRow]:
        statement = "SELECT * FROM usage WHERE (day, tenant, user, app, model) = (?, ?, ?, ?, ?)"
        with self._lock:
            return [UsageRow(*row) for key in keys for row in self._database.execute(statement, key)]
