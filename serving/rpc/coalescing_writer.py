"""What waits to be written to one stream: it goes out as one message, if that is not large."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Generic, TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)
# No single item comes near to it. A message beyond serving.rpc.channel.MAX_MESSAGE_BYTES would break the stream, and
# with it everything that the stream carries.
PART_BYTES = 4 * 1024 * 1024


class CoalescingWriter(Generic[M]):
    """Callers change `pending` and call `flush`; `messages` is the stream's only writer (two writers would kill it).

    One message carries what came in one loop tick or, when the stream is slower, while the last one was being written.
    """

    def __init__(self, kind: Callable[[], M]) -> None:
        self._kind = kind
        self.pending = kind()
        self._ready = asyncio.Event()
        self._closed = False

    def flush(self) -> None:
        """Send `pending` at the end of this loop tick, or when the stream's flow control allows."""
        self._ready.set()

    def close(self) -> None:
        """End `messages`; what is pending is lost with the stream."""
        self._closed = True
        self._ready.set()

    async def messages(self) -> AsyncIterator[M]:
        """The request iterator of one call."""
        while True:
            await self._ready.wait()
            if self._closed:
                return
            self._ready.clear()
            message, self.pending = self.pending, self._kind()
            for part in parts(message, self._kind):
                yield part


def parts(message: M, kind: Callable[[], M]) -> Iterator[M]:
    """`message`, whose fields are all lists of messages, in order and in as few parts as PART_BYTES allows.

    An item that is larger is a part of its own.
    """
    if message.ByteSize() <= PART_BYTES:
        yield message
        return
    part, size = kind(), 0
    for field, items in message.ListFields():
        for item in items:
            if size and size + item.ByteSize() > PART_BYTES:
                yield part
                part, size = kind(), 0
            getattr(part, field.name).append(item)
            size += item.ByteSize()
    yield part
