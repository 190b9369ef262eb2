"""What waits to be written to one stream: everything of a loop tick goes out as one message."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)


class Outbox(Generic[M]):
    """Callers change `pending` and call `flush`; `messages` is the stream's only writer (two writers would kill it)."""

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
            yield message
