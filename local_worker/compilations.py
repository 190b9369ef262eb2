"""Submissions whose constraints are being compiled, beside the event loop and the engine's steps."""

import asyncio
import logging
from collections.abc import Callable

from fairlead.errors import FairleadError, Internal
from local_worker.attempt import Submission
from local_worker.backend import Backend
from local_worker.fair_turns import FairTurns
from local_worker.step_events import Sink
from serving.constraint import Constraint

log = logging.getLogger(__name__)
AT_ONCE = 2  # so that a constraint which takes long leaves room for another tenant's
MOST_WAITING = 64  # of each tenant
CompilationKey = tuple[Sink, str, int]  # with request id and attempt


class Compilations:
    """The submissions that wait for their constraints; clients take turns by the sizes of what they have compiled.

    What is known, or holds nothing that a caller wrote, takes no turn. All methods belong to the event loop.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._turns = FairTurns(AT_ONCE, MOST_WAITING)
        self._tasks: dict[CompilationKey, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def add(
        self,
        sink: Sink,
        submission: Submission,
        constraint: Constraint,
        done: Callable[[Submission | FairleadError], None],
    ) -> None:
        """Call `done` once `constraint` is compiled, with the submission, or with the error.

        A repeated message is ignored.
        """
        key = (sink, submission.request_id, submission.attempt)
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._compile(key, submission, constraint, done))

    def cancel(self, sink: Sink, request_id: str, attempt: int) -> bool:
        """Forget a submission of `sink`; return False if it does not wait here."""
        task = self._tasks.pop((sink, request_id, attempt), None)
        return task is not None and task.cancel()

    def cancel_all(self, sink: Sink) -> None:
        """Forget every submission of `sink`, whose stream broke."""
        for key in [key for key in self._tasks if key[0] is sink]:
            self.cancel(*key)

    async def _compile(
        self,
        key: CompilationKey,
        submission: Submission,
        constraint: Constraint,
        done: Callable[[Submission | FairleadError], None],
    ) -> None:
        result: Submission | FairleadError
        try:
            await self._check(submission.client, constraint)
            result = submission
        except FairleadError as error:
            result = error
        except Exception:
            log.exception("a constraint could not be compiled")
            result = Internal("the constraint could not be compiled")
        del self._tasks[key]
        done(result)

    async def _check(self, client: str, constraint: Constraint) -> None:
        if not self._backend.is_known(constraint):
            async with self._turns.turn(client, 1 + constraint.size):
                await self._backend.check(constraint)
        else:
            await self._backend.check(constraint)
