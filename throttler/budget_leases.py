"""A process' conversation with the ledger of budgets: leases for calls that wait, reports, and recalls.

One message is under way at a time, so that the answers about an account come in the order of its requests. When the
ledger does not answer, calls go on within their leases and are refused beyond them: budgets are not exceeded. When it
answers again, everything that this process knows is written back before anything is asked.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from throttler.core.budget import BudgetDemand
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budget_ledger import BudgetReply, BudgetRequest

log = logging.getLogger(__name__)
REPORT_SECONDS = 0.2  # between reports for which no call waits
BEAT_SECONDS = 1.0  # between two messages, even if there is nothing to say
RECALL_SECONDS = 0.02  # time in which others give back a lease
FAREWELL_SECONDS = 1.0


class LedgerUnreachable(Exception):
    """The ledger did not answer; what it was told may have arrived or not."""


class LedgerLost(Exception):
    """The ledger has lost its data since the last answer."""


class Ledger(Protocol):
    """The accounts that processes share. All methods raise LedgerUnreachable."""

    async def ask(self, requests: Sequence[BudgetRequest]) -> Sequence[BudgetReply]:
        """Return the replies in the order of the requests, of which there may be none; raise LedgerLost."""

    async def restore(self, known: Iterator[tuple[BudgetRequest, dict[str, str]]]) -> None:
        """Write what this process knows of each account: its own report, and the entries of others."""

    async def forget(self, keys: Sequence[str]) -> None:
        """Remove this process' entries of accounts."""

    async def listen(self, recall: Callable[[str], None]) -> None:
        """Call `recall` with the key of each account whose leases others need, until cancelled."""

    async def close(self) -> None:
        """Disconnect."""


@dataclass(slots=True)
class _Wanted:
    demand: BudgetDemand
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    due: float = 0.0  # when to ask
    is_again: bool = False  # others had the time to give back


class BudgetLeases:
    """The leases of one process."""

    def __init__(self, accounts: BudgetAccounts, ledger: Ledger, clock: Callable[[], float] = time.monotonic) -> None:
        self._accounts = accounts
        self._ledger = ledger
        self._clock = clock
        self._wanted: dict[str, _Wanted] = {}
        self._recalled: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._is_lost = False  # the ledger may lack what this process knows
        self._asked_at = 0.0

    async def lease(self, demand: BudgetDemand) -> None:
        """Request what a call lacks; return after any answer, or when there is none."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wanted = self._wanted.setdefault(demand.account.key, _Wanted(demand))
        wanted.demand = max(wanted.demand, demand, key=lambda each: each.amount)
        wanted.waiting.append(waiting)
        self._wake.set()
        await waiting

    async def run(self) -> None:
        """Talk to the ledger until cancelled, and give back all leases then."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._converse())
                tasks.create_task(self._ledger.listen(self._recall))
        finally:
            with contextlib.suppress(LedgerUnreachable, LedgerLost, TimeoutError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await self._ledger.ask(self._accounts.farewell(self._clock()))
            await self._ledger.close()

    def _recall(self, key: str) -> None:
        self._recalled[key] = None
        self._wake.set()

    async def _converse(self) -> None:
        while True:
            loop = asyncio.get_running_loop()
            due = min((wanted.due for wanted in self._wanted.values()), default=math.inf) - loop.time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(REPORT_SECONDS, max(0.0, due))):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._exchange()
            except LedgerLost:
                log.error("the ledger of budgets may have lost data: it is written again")
                self._is_lost = True
            except LedgerUnreachable as error:
                if not self._is_lost:
                    log.error("budgets: the ledger is out of reach", extra={"reason": str(error)})
                self._is_lost = True
                for key in list(self._wanted):
                    self._accounts.unreachable(self._wanted[key].demand.account, self._clock())
                    self._release(key)
                await asyncio.sleep(REPORT_SECONDS)

    async def _exchange(self) -> None:
        if self._is_lost:
            await self._ledger.restore(self._accounts.everything(self._clock()))
            self._is_lost = False
            log.info("budgets are shared")
        now, at = self._clock(), asyncio.get_running_loop().time()
        wanted = {key: each.demand for key, each in self._wanted.items() if each.due <= at}
        reports = [request for request in self._accounts.take_due(now) if request.account.key not in self._wanted]
        recalled = [key for key in self._recalled if key not in self._wanted]
        self._recalled = {}
        returns = [request for key in recalled if (request := self._accounts.give_all_back(key, now)) is not None]
        leases = [self._accounts.request(demand.account, demand.amount, now) for demand in wanted.values()]
        if closed := self._accounts.take_closed():
            await self._ledger.forget(closed)
        if not (requests := [*leases, *reports, *returns]) and at < self._asked_at + BEAT_SECONDS:
            return
        self._asked_at = at
        replies = await self._ledger.ask(requests)
        for request, reply in zip(requests, replies, strict=True):
            self._accounts.answered(request, reply, self._clock())
            if request.account.key in wanted:
                self._answered(request.account.key, reply)

    def _answered(self, key: str, reply: BudgetReply) -> None:
        wanted, at = self._wanted[key], asyncio.get_running_loop().time()
        if reply.settles_in:
            wanted.due = at + reply.settles_in
        elif reply.recalled and not wanted.is_again:
            wanted.due, wanted.is_again = at + RECALL_SECONDS, True
        else:
            self._release(key)

    def _release(self, key: str) -> None:
        for each in self._wanted.pop(key).waiting:
            if not each.done():
                each.set_result(None)
