"""Compilation of callers' constraints, none of which can hold the worker up."""

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from fairlead.errors import InvalidRequest
from local_worker.engine.grammars import CPU_SECONDS, MEMORY_BYTES, NICENESS, Grammar, Grammars, refused
from local_worker.low_priority import lower_priority
from local_worker.sandbox import BeyondLimits, Sandbox
from serving.constraint import Constraint

MOST_REMEMBERED = 1000  # constraints that were found to be beyond the limits


class ConstraintCompiler:
    """Compiles in a Sandbox, and once more here what was within its limits there.

    All methods belong to the event loop.
    """

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._sandbox = Sandbox(grammars.setup)
        self._threads = ThreadPoolExecutor(
            thread_name_prefix="constraint", initializer=lower_priority, initargs=(NICENESS,)
        )
        self._excessive: OrderedDict[int, None] = OrderedDict()  # hashes of constraints

    def known(self, constraint: Constraint) -> Grammar | None:
        """Return the grammar of a constraint that is compiled."""
        return self._grammars.known(constraint)

    async def compile(self, constraint: Constraint) -> Grammar:
        """Return the grammar of `constraint`; raise InvalidRequest, which names the field and the reason."""
        if constraint.texts:  # otherwise there is nothing that a caller has written
            await self._try(constraint)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._grammars.compile, constraint)

    async def _try(self, constraint: Constraint) -> None:
        key = hash(constraint)
        try:
            if key in self._excessive:
                raise BeyondLimits
            error = await self._sandbox.compile(self._grammars.source(constraint))
        except BeyondLimits:
            self._excessive[key] = None
            if len(self._excessive) > MOST_REMEMBERED:
                self._excessive.popitem(last=False)
            raise InvalidRequest(
                f"takes more than {CPU_SECONDS:g} s of processor time, or {MEMORY_BYTES >> 20} MiB, to compile",
                constraint.field,
            ) from None
        if error:
            raise refused(error, constraint)

    def close(self) -> None:
        """End the process."""
        self._sandbox.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
