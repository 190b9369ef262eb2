"""Turns of many clients at work of which little may run at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fairlead.errors import ClientLimit
from serving.core.fair_queue import FairQueue
from serving.names import tenant_of

RETRY_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Turn:
    """One turn, which its client has once `given` is set."""

    client: str
    cost: int
    given: asyncio.Event = field(default_factory=asyncio.Event)


class FairTurns:
    """Turns of which at most `at_once` are taken together, and one of each tenant.

    A FairQueue decides which tenant is next, and one for each tenant which of its clients. All methods belong to the
    event loop.
    """

    def __init__(self, at_once: int, most_waiting: int) -> None:
        """Let `most_waiting` turns of each tenant wait."""
        self._free = at_once
        self._most_waiting = most_waiting
        self._next = FairQueue[Turn]()
        self._tenants: dict[str, FairQueue[Turn]] = {}  # what waits behind the first turn of a tenant

    @asynccontextmanager
    async def turn(self, client: str, cost: int) -> AsyncIterator[None]:
        """Wait for a turn of `client`, and keep it within the context.

        `cost` is in any unit, which must be the same for all calls. Raises ClientLimit if too many of the tenant's
        turns wait.
        """
        tenant, turn = tenant_of(client), Turn(client, cost)
        is_first = tenant not in self._tenants
        own = self._tenants.setdefault(tenant, FairQueue())
        if len(own) >= self._most_waiting:
            raise ClientLimit(f"{tenant!r} has {len(own)} constraints that wait to be compiled", RETRY_SECONDS)
        own.put(client, cost, turn)
        if is_first:
            self._follow(tenant)
        self._give()
        try:
            await turn.given.wait()
            yield
        finally:
            self._end(tenant, turn)

    def _end(self, tenant: str, turn: Turn) -> None:
        """Remove `turn`, which may wait, and let the tenant's next one follow if it was the first."""
        own = self._tenants[tenant]
        if turn in own:
            own.withdraw(turn.client, turn)
            return
        if turn.given.is_set():
            self._free += 1
        else:
            self._next.withdraw(tenant, turn)
        self._follow(tenant)
        self._give()

    def _follow(self, tenant: str) -> None:
        """Let the next turn of `tenant` wait with those of the others."""
        if (following := self._tenants[tenant].take()) is not None:
            self._next.put(tenant, following.cost, following)
        else:
            del self._tenants[tenant]

    def _give(self) -> None:
        # An empty queue forgets whose turn it was, which must not be while turns are taken.
        while self._free and (self._next or not self._tenants) and (turn := self._next.take()) is not None:
            self._free -= 1
            turn.given.set()
