"""The beginning of a connection with TLS: the handshake, of which a bounded number is under way."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from gateway.core.connection_table import ConnectionTable
from gateway.http.transport import address_of

MOST_HANDSHAKES = 512  # at once, each of which takes 50 kB to 125 kB; one takes a few round trips
HANDSHAKE_SECONDS = 20.0  # as long as a busy machine may need


class TlsHandshake(asyncio.Protocol):
    """A connection whose handshake has not ended; `make` returns the protocol that it has then.

    An event loop that is given the context makes handshakes where nothing can count or end them.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        table: "ConnectionTable[TlsHandshake]",
        make: Callable[[], asyncio.BufferedProtocol],
    ) -> None:
        self._context = context
        self._table = table
        self._make = make
        self._socket: socket.socket | None = None  # until a transport has it
        self._task: asyncio.Task[None]  # kept, or it could be collected

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol. Nothing has been read: the socket gets another transport."""
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        victim = self._table.add(self, address_of(transport.get_extra_info("peername")))
        self._task = asyncio.get_running_loop().create_task(self._shake_hands())
        self._task.add_done_callback(self._end)
        transport.abort()
        if victim is not None:
            victim.abort()

    def abort(self) -> None:
        """Break the connection."""
        self._task.cancel()

    async def _shake_hands(self) -> None:
        connected, self._socket = self._socket, None
        assert connected is not None
        with suppress(OSError):  # the peer speaks no TLS, is slow or gone
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, connected, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )

    def _end(self, _: asyncio.Task[None]) -> None:
        self._table.remove(self)
        if self._socket is not None:  # it was to end before it began
            self._socket.close()
