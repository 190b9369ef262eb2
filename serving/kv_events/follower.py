"""The subscription to an engine's events about its KV cache, over ZeroMQ."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import zmq
import zmq.asyncio

from serving.kv_events.core.event_sequence import BatchOrder, EventSequence
from serving.kv_events.messages import ALL_BATCHES, KvBatch, KvEvent, decode_batch

log = logging.getLogger(__name__)
QUIET_SECONDS = 5.0  # after so long without an event the engine is asked whether there were any
REPLAY_SECONDS = 5.0  # for one message of a replay; the engine looks for requests ten times a second
MOST_BYTES = 64 * 1024 * 1024  # of a message; the socket closes the connection of a longer one
NUMBER_BYTES = 8
CLIPPED = 200  # characters of an error that the log repeats


class KvFollower:
    """A subscriber to `endpoint`, which asks `replay_endpoint`, if there is one, for batches that it has missed.

    A subscription begins after the engine has begun to publish, and what is lost at the end of a burst shows only at
    the next one. So it asks at the beginning, and when nothing has come for QUIET_SECONDS, too. Without a replay it
    forgets all blocks after a gap. So a block that it knows is cached, unless it was just evicted.
    """

    def __init__(
        self,
        endpoint: str,
        replay_endpoint: str,
        apply: Callable[[list[KvEvent]], None],
        clear: Callable[[], None],
    ) -> None:
        self._endpoint = endpoint
        self._replay_endpoint = replay_endpoint
        self._apply = apply
        self._clear = clear
        self._sequence = EventSequence()
        self._is_answered = True  # whether the latest request for a replay was
        self._is_understood = True  # whether the latest message was

    def restart(self) -> None:
        """Forget what the engine has published, since it is not the same engine any more."""
        self._sequence.reset()
        self._clear()

    async def run(self) -> None:
        """Follow the events until cancelled."""
        context = zmq.asyncio.Context()
        try:
            await self.follow(context)
        finally:
            context.destroy(linger=0)

    async def follow(self, context: zmq.asyncio.Context) -> None:
        """Follow the events until cancelled, with sockets of a context that several subscribers share."""
        with _connected(context, zmq.SUB, self._endpoint) as subscriber:
            subscriber.subscribe(b"")
            await self._replay(context)
            while True:
                if not await subscriber.poll(int(QUIET_SECONDS * 1000)):
                    await self._replay(context)
                elif received := self._read(await subscriber.recv_multipart()):
                    if self._order(*received) in (BatchOrder.EARLY, BatchOrder.RESTARTED):
                        await self._replay(context)
                    self._pass(*received)
                await asyncio.sleep(0)  # the messages of a burst are received without a wait

    async def _replay(self, context: zmq.asyncio.Context) -> None:
        """Apply the batches that were missed and that the engine still has."""
        if self._replay_endpoint and not await self._ask(context):
            self.restart()
            await self._ask(context)

    async def _ask(self, context: zmq.asyncio.Context) -> bool:
        """Apply what the engine has after the latest batch; return False if it has not that one, and so began anew."""
        is_same = self._sequence.next == 0
        with _connected(context, zmq.DEALER, self._replay_endpoint) as socket:
            await socket.send_multipart([b"", max(0, self._sequence.next - 1).to_bytes(8, "big")])
            while await socket.poll(int(REPLAY_SECONDS * 1000)):
                self._is_answered = True
                frames = await socket.recv_multipart()
                if frames[-2:-1] == [ALL_BATCHES]:
                    return is_same
                if received := self._read(frames):
                    if not is_same and self._order(*received) is BatchOrder.RESTARTED:
                        return False
                    is_same = True
                    self._pass(*received)
                await asyncio.sleep(0)
        if self._is_answered:
            log.warning("events of the KV cache are not replayed", extra={"endpoint": self._replay_endpoint})
        self._is_answered = False
        return True

    def _read(self, frames: list[bytes]) -> tuple[int, KvBatch] | None:
        """Return a message's number and batch; one that is not understood may have been about any block."""
        try:
            *_, number, payload = frames
            if len(number) != NUMBER_BYTES:
                raise ValueError(f"the number of a message has {len(number)} bytes, not {NUMBER_BYTES}")
            return int.from_bytes(number, "big"), decode_batch(payload)
        except Exception as error:  # whatever an engine sends, its picker or adapter goes on
            self._misunderstood(error)
            return None

    def _misunderstood(self, error: Exception) -> None:
        """Forget all blocks; log the first of consecutive messages that are not understood."""
        if self._is_understood:
            log.warning("an event of the KV cache is not understood", extra={"error": repr(error)[:CLIPPED]})
        self._is_understood = False
        self._clear()

    def _order(self, number: int, batch: KvBatch) -> BatchOrder:
        return self._sequence.kind(number, batch.time)

    def _pass(self, number: int, batch: KvBatch) -> None:
        """Apply a batch, unless it was. What is known of others holds only if none is missing before it."""
        order = self._order(number, batch)
        if order is BatchOrder.REPEATED:
            return
        if order is BatchOrder.RESTARTED:
            self.restart()
        if number > self._sequence.next:
            log.info("events of the KV cache are missing", extra={"first": self._sequence.next, "received": number})
            self._clear()
        self._sequence.passed(number, batch.time)
        try:
            self._apply(batch.events)
            self._is_understood = True
        except Exception as error:  # see _read
            self._misunderstood(error)


@contextmanager
def _connected(context: zmq.asyncio.Context, kind: int, endpoint: str) -> Iterator[zmq.asyncio.Socket]:
    socket = context.socket(kind)
    try:
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        socket.connect(endpoint)
        yield socket
    finally:
        socket.close(linger=0)
