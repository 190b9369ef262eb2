"""A transport that passes on once what is written during one turn of the event loop."""

import asyncio
from typing import Any

# A socket that is closed with unread input resets its connection, and what it sent last may be lost with it.
READING_SECONDS = 1.0


class GatheringTransport(asyncio.Transport):
    """Gathers writes until the loop's next turn, because each write to a socket costs a system call.

    The tokens of several steps, the first event of an answer and its head, the last event and the end leave together.
    A caller that still sends when the connection is closed has READING_SECONDS to read what was written.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._has_ended = False

    def write(self, data: Any) -> None:
        """See asyncio.WriteTransport. What is written after the end is dropped."""
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)

    def close(self) -> None:
        """See asyncio.BaseTransport: what was written before is still sent."""
        if self.is_closing():
            return
        self._flush()
        self._has_ended = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
            self._loop.call_later(READING_SECONDS, self._transport.close)
        else:
            self._transport.close()

    def abort(self) -> None:
        """See asyncio.WriteTransport."""
        self._has_ended = True
        self._held.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        """See asyncio.BaseTransport."""
        return self._has_ended or self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        """See asyncio.WriteTransport."""
        return sum(map(len, self._held)) + self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio.BaseTransport."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._transport.resume_reading()

    def _flush(self) -> None:
        held, self._held = self._held, []
        if held and not self.is_closing():
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))
