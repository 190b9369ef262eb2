"""Turns of large messages at the event loop, which stands still while a message is made into objects."""

import asyncio

from serving.core.fair_queue import FairQueue

LARGE = 64 * 1024  # bytes; a smaller message waits for no turn


class BodyTurns:
    """Turns in which large messages are made into objects, one at a time.

    A FairQueue decides by bytes whose message is next. After each message the loop is left to others for as long as
    the message has kept it: large messages take at most half of its time, from however many connections they come.
    """

    def __init__(self) -> None:
        self._queue = FairQueue[asyncio.Event]()
        self._is_taken = False

    async def turn(self, client: str, size: int) -> None:
        """Return when a message of `size` bytes may be made into objects, at once for one that is not large.

        It must be made before anything is awaited. A client that is cancelled while it waits is not charged.
        """
        if size <= LARGE:
            return
        turn = asyncio.Event()
        self._queue.put(client, size, turn)
        if not self._is_taken:
            self._next()
        loop = asyncio.get_running_loop()
        try:
            await turn.wait()
        except asyncio.CancelledError:
            if turn.is_set():
                self._next()
            else:
                self._queue.withdraw(client, turn)
            raise
        loop.call_soon(self._rest, loop.time())  # runs when the caller awaits something else

    def _rest(self, begun: float) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(loop.time() - begun, self._next)

    def _next(self) -> None:
        turn = self._queue.take()
        self._is_taken = turn is not None
        if turn is not None:
            turn.set()
