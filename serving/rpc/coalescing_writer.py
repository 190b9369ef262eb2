"""A writer that sends everything that waits for one stream as one message, unless that would be too large."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Generic, TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)
# Every single item is far smaller. A message larger than fairlead.rpc.channel.MAX_MESSAGE_BYTES would break the stream
# and end every call that it carries.
PART_BYTES = 4 * 1024 * 1024


class CoalescingWriter(Generic[M]):
    """The only writer of a stream (two writers would break it): callers change `pending` and then call `flush`.

    One message carries the items of one loop tick or, if the stream is slower, the items that were added while the
    previous message was written.
    """

    def __init__(self, kind: Callable[[], M]) -> None:
        self._kind = kind
        self.pending = kind()
        self._ready = asyncio.Event()
        self._closed = False
        # Send `pending` at the end of this loop tick, or later when the stream's flow control allows it.
        self.flush: Callable[[], None] = self._ready.set

    def close(self) -> None:
        """End `messages`; items that are still pending are lost."""
        self._closed = True
        self._ready.set()

    async def messages(self) -> AsyncIterator[M]:
        """Yield the messages to write: the request iterator of one call."""
        while True:
            await self._ready.wait()
            if self._closed:
                return
            self._ready.clear()
            message, self.pending = self.pending, self._kind()
            if message.ByteSize() <= PART_BYTES:
                yield message
            else:
                for part in parts(message, self._kind):
                    yield part


def parts(message: M, kind: Callable[[], M]) -> Iterator[M]:
    """Split `message`, whose fields are all lists of messages, into consecutive parts of at most PART_BYTES each.

    An item that is larger is a part of its own.
    """
    part, size = kind(), 0
    for field, items in message.ListFields():
        for item in items:
            if size and size + item.ByteSize() > PART_BYTES:
                yield part
                part, size = kind(), 0
            getattr(part, field.name).append(item)
            size += item.ByteSize()
    yield part
