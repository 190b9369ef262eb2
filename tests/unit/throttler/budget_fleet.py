"""Processes that share budgets: through a ledger in memory, in a file, or in Redis."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

from serving.cost import WeightedTokens
from throttler.budget_leases import BudgetLeases, Ledger, LedgerUnreachable
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budget_ledger import BudgetLedger, BudgetReply, BudgetRequest
from throttler.core.budgets import Budgets
from throttler.core.decider import Decider
from throttler.core.expectations import Expectations
from throttler.core.interactions import Interactions
from throttler.core.profiles import Profiles
from throttler.core.throttles import Rpm
from throttler.core.windows import LocalQuota
from throttler.store import LocalStore
from throttler.throttler import Throttler

SECRET = "the secret of those that share budgets"


class MemoryLedger:
    """See Ledger: the ledger itself, which can be out of reach."""

    def __init__(self, name: str, entries: BudgetLedger, peers: "list[MemoryLedger]") -> None:
        self.name, self.entries, self.is_away = name, entries, False
        self._peers = peers
        self._recall: Callable[[str], None] = lambda key: None
        peers.append(self)

    async def ask(self, requests: Sequence[BudgetRequest]) -> Sequence[BudgetReply]:
        if self.is_away:
            raise LedgerUnreachable("away")
        replies = [self.entries.ask(self.name, request) for request in requests]
        for request, reply in zip(requests, replies, strict=True):
            for peer in self._peers:
                if reply.recalled and peer is not self:
                    peer._recall(request.account.key)
        return replies

    async def restore(self, known: Iterator[tuple[BudgetRequest, dict[str, str]]]) -> None:
        await self.ask([request for request, _ in known])

    async def forget(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.entries.entries.get(key, {}).pop(self.name, None)

    async def listen(self, recall: Callable[[str], None]) -> None:
        self._recall = recall
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


@dataclass
class Sharer:
    """One process that decides about calls."""

    throttler: Throttler
    decider: Decider
    ledger: Ledger


@contextlib.asynccontextmanager
async def sharing(
    ledgers: Sequence[Ledger], profiles: Profiles, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[list[Sharer]]:
    """A process on each of the ledgers."""
    sharers = []
    async with asyncio.TaskGroup() as tasks:
        running = []
        for ledger in ledgers:
            accounts = BudgetAccounts(is_shared=True)
            decider = Decider(
                Rpm(profiles, LocalQuota()),
                Interactions(SECRET, profiles),
                Expectations(profiles),
                Budgets(profiles, accounts, WeightedTokens()),
            )
            leases = BudgetLeases(accounts, ledger, clock)
            throttler = Throttler(decider, LocalStore(), lambda _: None, clock, leases)
            running.append(tasks.create_task(leases.run()))
            sharers.append(Sharer(throttler, decider, ledger))
        try:
            yield sharers
        finally:
            for task in running:
                task.cancel()


def in_memory(count: int) -> list[MemoryLedger]:
    """Links of processes to one ledger."""
    entries, peers = BudgetLedger(), list[MemoryLedger]()
    return [MemoryLedger(f"g{number}", entries, peers) for number in range(count)]
