"""The subscription to an engine's events about its KV cache, over ZeroMQ."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack

import msgspec
import zmq
import zmq.asyncio

from serving.kv_events.core.event_sequence import BatchOrder, EventSequence
from serving.kv_events.messages import ALL_BATCHES, KvBatch, KvEvent, decode_batch

log = logging.getLogger(__name__)
REPLAY_SECONDS = 5.0  # the engine looks for requests for a replay ten times a second
MALFORMED = (msgspec.DecodeError, KeyError, TypeError, ValueError)


class KvFollower:
    """A subscriber to `endpoint`, which asks `replay_endpoint`, if there is one, for batches that it has missed.

    Without a replay it forgets all blocks after a gap. So a block that it knows is cached, unless it was just evicted.
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

    def restart(self) -> None:
        """Forget what the engine has published, since it is not the same engine any more."""
        self._sequence.reset()
        self._clear()

    async def run(self) -> None:
        """Follow the events until cancelled."""
        with ExitStack() as closing:
            context = zmq.asyncio.Context()
            closing.callback(context.destroy, linger=0)
            await self.follow(context)

    async def follow(self, context: zmq.asyncio.Context) -> None:
        """Follow the events until cancelled, with sockets of a context that several subscribers share."""
        with ExitStack() as closing:
            subscriber = context.socket(zmq.SUB)
            closing.callback(subscriber.close, linger=0)
            subscriber.setsockopt(zmq.IPV6, 1)
            subscriber.setsockopt(zmq.SUBSCRIBE, b"")
            subscriber.connect(self._endpoint)
            while True:
                *_, number, payload = await subscriber.recv_multipart()
                await self._receive(context, int.from_bytes(number, "big"), payload)

    async def _receive(self, context: zmq.asyncio.Context, number: int, payload: bytes) -> None:
        try:
            batch = decode_batch(payload)
        except MALFORMED as error:
            log.warning("an event of the KV cache is not understood", extra={"error": repr(error)})
            self._clear()
            return
        kind = self._sequence.kind(number, batch.time)
        if kind is BatchOrder.REPEATED:
            return
        if kind is BatchOrder.RESTARTED:
            self.restart()
        if number > self._sequence.next:
            await self._replay(context)
        if number > self._sequence.next:
            log.info("events of the KV cache are missing", extra={"first": self._sequence.next, "received": number})
            self._clear()
        if number >= self._sequence.next:
            self._pass(number, batch)

    def _pass(self, number: int, batch: KvBatch) -> None:
        self._sequence.passed(number, batch.time)
        self._apply(batch.events)

    async def _replay(self, context: zmq.asyncio.Context) -> None:
        """Apply the missed batches that the engine still has, if they are complete."""
        if not self._replay_endpoint:
            return
        socket = context.socket(zmq.DEALER)
        try:
            socket.setsockopt(zmq.IPV6, 1)
            socket.connect(self._replay_endpoint)
            await socket.send_multipart([b"", self._sequence.next.to_bytes(8, "big")])
            async with asyncio.timeout(REPLAY_SECONDS):
                while (reply := await socket.recv_multipart())[-2] != ALL_BATCHES:
                    number = int.from_bytes(reply[-2], "big")
                    if number != self._sequence.next:
                        return
                    self._pass(number, decode_batch(reply[-1]))
        except (TimeoutError, *MALFORMED) as error:
            log.warning("events of the KV cache were not replayed", extra={"error": repr(error)})
        finally:
            socket.close(linger=0)
