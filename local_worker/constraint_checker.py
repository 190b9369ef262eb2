"""Trial compilations of callers' constraints, none of which can hold the worker up."""

import asyncio
import pickle
import struct
from collections import OrderedDict
from importlib.util import find_spec

from fairlead.errors import InvalidRequest
from local_worker.sandbox import BEYOND_LIMITS, Sandbox
from serving.constraint import Constraint

MOST_KNOWN = 10_000  # constraints, of which only hashes are kept
LENGTH = struct.Struct("!i")  # before each message, as multiprocessing's connections have it


class ConstraintChecker:
    """Compiles a constraint once in a process of its own, before an output that obeys it is queued.

    All methods belong to the event loop.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._errors: OrderedDict[int, str] = OrderedDict()  # by hash; empty for what can be obeyed

    def is_known(self, constraint: Constraint) -> bool:
        """Return whether `check` returns or raises at once."""
        return not constraint.texts or hash(constraint) in self._errors

    async def check(self, constraint: Constraint) -> None:
        """Raise InvalidRequest, which names the field and the reason, if `constraint` cannot be obeyed.

        What is not known takes milliseconds, and at most CPU_SECONDS of processor time; if the caller is cancelled it
        ends.
        """
        if find_spec("llguidance") is None:
            raise InvalidRequest("is not supported by this worker, which lacks llguidance", constraint.field)
        if not constraint.texts:  # no caller has written anything of it
            return
        key = hash(constraint)
        error = self._errors.get(key)
        if error is None:
            error = await self._compile(constraint)
        self._errors[key] = error
        self._errors.move_to_end(key)
        if len(self._errors) > MOST_KNOWN:
            self._errors.popitem(last=False)
        if error:
            raise InvalidRequest(error, constraint.field)

    async def _compile(self, constraint: Constraint) -> str:
        try:
            is_running = self._sandbox.is_running
            connect = self._sandbox.connect
            connection, life = connect() if is_running else await asyncio.to_thread(connect)
        except ValueError as error:
            raise InvalidRequest(str(error), constraint.field) from error
        with life:
            reader, writer = await asyncio.open_connection(sock=connection)
            try:
                request = pickle.dumps(constraint)
                writer.write(LENGTH.pack(len(request)) + request)
                [size] = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                answer: str = pickle.loads(await reader.readexactly(size))
            except (asyncio.IncompleteReadError, ConnectionError):
                if not self._sandbox.is_running:
                    raise
                return f"{BEYOND_LIMITS}, to compile"
            finally:
                writer.close()
        return answer

    def close(self) -> None:
        """End the process from which trial compilations are forked."""
        self._sandbox.close()
