"""The limit on the time in which a caller reads nothing of what waits to be sent."""

import asyncio


class ReaderLimit:
    """Aborts a connection whose caller has read nothing for `seconds` while something waits to be sent."""

    def __init__(self, transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to wait for the caller; nothing more is written for now."""
        self.stop()
        self._timer = self._loop.call_later(self._seconds, self._check, self._transport.get_write_buffer_size())

    def stop(self) -> None:
        """Wait no longer: the caller has read, or is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, unread: int) -> None:
        if self._transport.get_write_buffer_size() < unread:
            self.start()
        else:
            self._transport.abort()
