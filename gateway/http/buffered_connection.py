"""The way of a connection's input: through a buffer that all connections of a server share."""

import asyncio

from gateway.http.connection import HttpConnection


class BufferedConnection(asyncio.BufferedProtocol):
    """Has `connection` read through `buffer`, which all connections share: what is read is taken out at once.

    An event loop would hand over up to 256 KiB at a time, of thousands of callers that have shown no key.
    """

    def __init__(self, connection: HttpConnection, buffer: memoryview) -> None:
        self._connection = connection
        self._buffer = buffer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.BaseProtocol."""
        self._connection.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._connection.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self._connection.data_received(bytes(self._buffer[:nbytes]))
