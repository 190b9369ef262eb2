"""Threads that wait for the masks of constrained outputs, beside the steps."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from local_worker.core.tenant_queue import TenantQueue, Ticket
from local_worker.sandbox_process import Mask

THREADS = 4
IDLE_SECONDS = 5.0  # after which a thread ends


class MaskWork(NamedTuple):
    """The computation of a mask, and its result."""

    compute: Callable[[], Mask]
    future: "Future[Mask]"


class MaskThreads:
    """Threads that share the time for masks among tenants, and that of a tenant among its users.

    Of each tenant one mask is made at a time. Any thread may call the methods. The threads start with the first
    masks, and do not keep the process from its end.
    """

    def __init__(self) -> None:
        self._queue = TenantQueue[MaskWork]()
        self._changed = threading.Condition()
        self._threads = 0

    def submit(self, client: str, cost: int, compute: Callable[[], Mask]) -> "Future[Mask]":
        """Make a mask in the client's turn; `cost` is the number of microseconds that it is expected to take."""
        work = MaskWork(compute, Future())
        with self._changed:
            self._queue.put(Ticket(client, cost, work))
            if self._threads < THREADS:
                self._threads += 1
                threading.Thread(target=self._run, name="masks", daemon=True).start()
            self._changed.notify()
        return work.future

    def _run(self) -> None:
        while (ticket := self._next()) is not None:
            work = ticket.item
            if work.future.set_running_or_notify_cancel():
                try:
                    work.future.set_result(work.compute())
                except BaseException as error:
                    work.future.set_exception(error)
            with self._changed:
                self._queue.done(ticket)

    def _next(self) -> Ticket[MaskWork] | None:
        """Wait for the next work and return it; None after an idle time."""
        with self._changed:
            while (ticket := self._queue.take()) is None:
                if not self._changed.wait(IDLE_SECONDS):
                    self._threads -= 1
                    return None
            return ticket
