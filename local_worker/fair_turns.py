"""Turns of many clients at work of which little may run at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlead.errors import ClientLimit
from local_worker.core.tenant_queue import TenantQueue, Ticket

RETRY_SECONDS = 1.0


class FairTurns:
    """Turns of which at most `at_once` are taken together, and one of each tenant; a TenantQueue decides whose is next.

    All methods belong to the event loop.
    """

    def __init__(self, at_once: int, most_waiting: int) -> None:
        """Let `most_waiting` turns of each tenant wait."""
        self._free = at_once
        self._most_waiting = most_waiting
        self._queue = TenantQueue[asyncio.Event]()

    @asynccontextmanager
    async def turn(self, client: str, cost: int) -> AsyncIterator[None]:
        """Wait for a turn of `client`, and keep it within the context.

        `cost` is in any unit, which must be the same for all calls. Raises ClientLimit if too many of the tenant's
        turns wait.
        """
        waiting = self._queue.behind(client)
        if waiting >= self._most_waiting:
            raise ClientLimit(f"{client!r}: {waiting} constraints of its tenant wait to be compiled", RETRY_SECONDS)
        ticket = Ticket(client, cost, asyncio.Event())
        self._queue.put(ticket)
        self._give()
        try:
            await ticket.item.wait()
            yield
        finally:
            if ticket.item.is_set():
                self._free += 1
                self._queue.done(ticket)
            else:
                self._queue.withdraw(ticket)
            self._give()

    def _give(self) -> None:
        while self._free and (ticket := self._queue.take()) is not None:
            self._free -= 1
            ticket.item.set()
