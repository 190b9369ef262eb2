"""Requests whose constraints are being compiled, beside the event loop and the engine's steps."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fairlead.errors import ClientLimit, FairleadError, Internal
from local_worker.backend import Backend
from local_worker.core.request import Request
from local_worker.core.tenant_queue import TenantQueue, Ticket
from serving.constraint import Constraint

log = logging.getLogger(__name__)
AT_ONCE = 2  # so that a constraint which takes long leaves room for another tenant's
MOST_WAITING = 64  # of each tenant
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


class Compilations:
    """The requests that wait for their constraints; clients take turns by the sizes of what they have compiled.

    What is known, or holds nothing that a caller wrote, takes no turn. All methods belong to the event loop.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._turns = FairTurns(AT_ONCE, MOST_WAITING)
        self._tasks: dict[Request, asyncio.Task[None]] = {}

    def add(self, request: Request, constraint: Constraint, done: Callable[[FairleadError | None], None]) -> None:
        """Call `done` once `constraint` is compiled, with the error if it cannot be."""
        self._tasks[request] = asyncio.create_task(self._compile(request, constraint, done))

    def cancel(self, request: Request) -> bool:
        """Forget a request; return False if it does not wait here."""
        task = self._tasks.pop(request, None)
        return task is not None and task.cancel()

    async def _compile(
        self, request: Request, constraint: Constraint, done: Callable[[FairleadError | None], None]
    ) -> None:
        failed: FairleadError | None = None
        try:
            await self._check(request.client, constraint)
        except FairleadError as error:
            failed = error
        except Exception:
            log.exception("a constraint could not be compiled")
            failed = Internal("the constraint could not be compiled")
        del self._tasks[request]
        done(failed)

    async def _check(self, client: str, constraint: Constraint) -> None:
        if not self._backend.is_known(constraint):
            async with self._turns.turn(client, 1 + constraint.size):
                await self._backend.check(constraint)
        else:
            await self._backend.check(constraint)
