"""An executor that runs the work of many clients on one thread, outside the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from serving.core.fair_queue import FairQueue

T = TypeVar("T")


class FairExecutor:
    """An executor of one function at a time; a FairQueue decides whose function runs next."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._queue = FairQueue[asyncio.Event]()
        self._is_taken = False

    @property
    def waiting(self) -> int:
        """The number of functions that wait to run."""
        return len(self._queue)

    async def run(self, client: str, cost: int, work: Callable[[], T]) -> T:
        """Run `work` when it is `client`'s turn, and return its result or raise its error.

        `cost` is in any unit, which must be the same for all calls. If the caller is cancelled while it waits, its
        client is not charged.
        """
        turn = asyncio.Event()
        self._queue.put(client, cost, turn)
        self._next()
        try:
            await turn.wait()
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            if turn.is_set():
                self._is_taken = False
                self._next()
            else:
                self._queue.withdraw(client, turn)

    def _next(self) -> None:
        if not self._is_taken and (turn := self._queue.take()) is not None:
            self._is_taken = True
            turn.set()
