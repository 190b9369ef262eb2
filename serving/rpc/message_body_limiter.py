"""Limits on messages that are arriving: their number, the time that each may take, and turns at the event loop."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from fairlead.errors import QueueFull
from serving.core.fair_queue import FairQueue
from serving.rpc.concurrency_limiter import ConcurrencyLimiter

WAITING = 1000  # messages that may wait for a place
SECONDS = 30.0
EACH = 1 / 4  # largest part of the places for one connection
LARGE = 64 * 1024  # bytes; a smaller message waits for no turn


@dataclass(slots=True, eq=False)
class _Arrival:
    connection: str
    began: float  # loop time
    limit: asyncio.Timeout


class MessageBodyLimiter:
    """Bounds the memory that messages take while they arrive, also messages that never end.

    gRPC buffers almost nothing of a message before it is read, but all of it from then on, however slowly it arrives.
    At most `places` messages are therefore read at a time. Others wait, and connections take turns. A message must
    arrive within `seconds`. When a message has waited `patience` seconds for a place, the connection with the most
    places loses its oldest message, if that has been arriving for at least `patience` seconds. Large ones then wait for
    their `turns` to be made into objects.
    """

    def __init__(self, places: int, seconds: float, patience: float) -> None:
        self.turns = BodyTurns()
        self._places = places
        self._each = round(EACH * places)
        self._seconds = seconds
        self._patience = patience
        self._arriving: list[_Arrival] = []  # oldest first
        self._held: Counter[str] = Counter()  # places, by connection
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}  # by connection; the one with the next turn first
        self._room = ConcurrencyLimiter(WAITING, "messages wait to be read")

    async def receive(self, context: grpc.aio.ServicerContext) -> Any:
        """Return the next message's bytes, or grpc.aio.EOF; raise QueueFull if it does not arrive in time."""
        return await self.arrive(context.peer(), context.read)

    async def arrive(self, connection: str, read: Callable[[], Awaitable[Any]]) -> Any:
        """Wait for a place, then return the result of `read`; raise QueueFull if it does not arrive in time."""
        await self._enter(connection)
        arrival = _Arrival(connection, asyncio.get_running_loop().time(), asyncio.timeout(self._seconds))
        self._arriving.append(arrival)
        try:
            async with arrival.limit:
                return await read()
        except TimeoutError:
            limits = f"{self._seconds:g} s, or {self._patience:g} s while others waited"
            error = QueueFull(f"the request did not arrive within {limits}", self._patience)
        finally:
            self._arriving.remove(arrival)
            self._leave(connection)
        raise error

    async def _enter(self, connection: str) -> None:
        """Take a place; wait until there is one."""
        if not self._queues and self._may_enter(connection):
            self._held[connection] += 1
            return
        self._room.enter(connection)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(connection, deque()).append(turn)
        self._admit()
        try:
            while not turn.done():
                await asyncio.wait([turn], timeout=self._patience)
                if not turn.done():
                    self._make_room()
        except asyncio.CancelledError:
            if turn.done():
                self._leave(connection)
            else:
                self._forget(connection, turn)
            raise
        finally:
            self._room.leave(connection)

    def _may_enter(self, connection: str) -> bool:
        return self._held.total() < self._places and self._held[connection] < self._each

    def _leave(self, connection: str) -> None:
        self._held[connection] -= 1
        if not self._held[connection]:
            del self._held[connection]
        if self._queues:
            self._admit()

    def _admit(self) -> None:
        """Give the free places to connections in turn."""
        while connection := next((each for each in self._queues if self._may_enter(each)), None):
            queue = self._queues.pop(connection)
            self._held[connection] += 1
            queue.popleft().set_result(None)
            if queue:
                self._queues[connection] = queue

    def _forget(self, connection: str, turn: asyncio.Future[None]) -> None:
        queue = self._queues[connection]
        queue.remove(turn)
        if not queue:
            del self._queues[connection]

    def _make_room(self) -> None:
        now = asyncio.get_running_loop().time()
        slow = [
            arrival
            for arrival in self._arriving
            if arrival.began <= now - self._patience and not arrival.limit.expired()
        ]
        if slow:
            max(slow, key=lambda arrival: self._held[arrival.connection]).limit.reschedule(now)

    def check_invariants(self) -> None:
        """Raise AssertionError if places and waiting connections contradict each other."""
        self._room.check_invariants()
        assert self._held.total() <= self._places, f"{self._held.total()} of {self._places} places held"
        assert all(0 < held <= self._each for held in self._held.values()), f"places: {self._held}"
        assert not any(self._may_enter(connection) for connection in self._queues), "a place is free and somebody waits"


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
