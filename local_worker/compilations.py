"""Requests whose constraints are being compiled, beside the event loop and the engine's steps."""

import asyncio
import logging
from collections.abc import Callable

from fairlead.errors import FairleadError, Internal
from local_worker.backend import Backend
from local_worker.core.request import Request
from local_worker.fair_turns import FairTurns
from serving.constraint import Constraint

log = logging.getLogger(__name__)
AT_ONCE = 2  # so that a constraint which takes long leaves room for another tenant's
MOST_WAITING = 64  # of each tenant


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
