"""The processes in which the outputs of tenants are followed, one of each tenant."""

import itertools
from collections import OrderedDict, deque
from collections.abc import Sequence
from multiprocessing.connection import Connection
from threading import Lock

from local_worker.sandbox import BEYOND_LIMITS, Sandbox
from local_worker.sandbox_process import Mask, MaskRequest
from serving.constraint import Constraint

MOST_PROCESSES = 16
_numbers = itertools.count()


class MaskProcess:
    """One process, for one thread at a time; `ended` are outputs that it may forget."""

    def __init__(self, sandbox: Sandbox) -> None:
        connection, self._life = sandbox.connect()
        self._connection = Connection(connection.detach())
        self.ended: deque[int] = deque()
        self.is_busy = False
        self.is_lost = False

    def mask(self, output: int, constraint: Constraint, tokens: Sequence[int]) -> Mask:
        """Append `tokens` to an output, and return the mask of its next token."""
        ended = tuple([self.ended.popleft() for _ in range(len(self.ended))])
        try:
            self._connection.send(MaskRequest(output, constraint, tuple(tokens), ended))
            mask: Mask = self._connection.recv()
        except (EOFError, OSError):
            self.is_lost = True
            return Mask(None, f"{constraint.field}: the output cannot go on: its next token {BEYOND_LIMITS}")
        return mask

    def close(self) -> None:
        self._connection.close()
        self._life.close()


class MaskProcesses:
    """A mask process for each tenant.

    Any thread may call the methods, if no other calls them for the same tenant.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._processes: OrderedDict[str, MaskProcess] = OrderedDict()  # the one that was used last is last
        self._lock = Lock()

    def take(self, tenant: str) -> MaskProcess:
        """Return the tenant's process, which stays open until `give_back`; raise ValueError without a vocabulary."""
        with self._lock:
            process = self._processes.get(tenant)
            if process is None or process.is_lost:
                self._make_room()
                process = self._processes[tenant] = MaskProcess(self._sandbox)
            self._processes.move_to_end(tenant)
            process.is_busy = True
            return process

    def _make_room(self) -> None:
        idle = [tenant for tenant, process in self._processes.items() if not process.is_busy]
        for tenant in idle[: max(0, len(self._processes) - MOST_PROCESSES + 1)]:
            self._processes.pop(tenant).close()

    def give_back(self, process: MaskProcess) -> None:
        """Allow the process to be closed."""
        process.is_busy = False

    def close(self) -> None:
        """End all that are idle; the others end with this process."""
        with self._lock:
            for process in self._processes.values():
                if not process.is_busy:
                    process.close()
            self._processes.clear()


class SandboxedOutput:
    """One constrained output, which the process of its tenant follows.

    Where that process was replaced by another one, all tokens are sent again.
    """

    def __init__(self, processes: MaskProcesses, tenant: str, constraint: Constraint) -> None:
        self._processes = processes
        self._tenant = tenant
        self._constraint = constraint
        self._number = next(_numbers)
        self._tokens: list[int] = []
        self._process: MaskProcess | None = None  # the one that knows the tokens so far

    def mask(self, tokens: Sequence[int]) -> Mask:
        """Append `tokens`, and return the mask of the next one; for one thread at a time."""
        self._tokens += tokens
        try:
            process = self._processes.take(self._tenant)
        except ValueError as error:
            return Mask(None, f"{self._constraint.field}: {error}")
        try:
            missing = tokens if process is self._process else self._tokens
            self._process = process
            return process.mask(self._number, self._constraint, missing)
        finally:
            self._processes.give_back(process)

    def end(self) -> None:
        """Let the process forget the output."""
        if self._process is not None:
            self._process.ended.append(self._number)
