"""The transport of a connection: it gathers writes, has a limit on the patience with its reader, and an address."""

import asyncio
import ipaddress
import socket
from typing import Any

# A socket that is closed with unread input resets its connection, and what it sent last may be lost with it.
READING_SECONDS = 1.0
PREFIX_BITS = 64  # of an IPv6 address: what one host has is at least a network of this size


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
            self._loop.call_soon(self.flush)
        self._held.append(data)

    def close(self) -> None:
        """See asyncio.BaseTransport: what was written before is still sent."""
        if self.is_closing():
            return
        self.flush()
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

    def flush(self) -> None:
        """Write what was gathered."""
        held, self._held = self._held, []
        if held and not self.is_closing():
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))

    def set_patience(self, seconds: float) -> None:
        """End the connection when the other machine has not acknowledged what was sent for so long."""
        connection = self._transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * seconds))


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


def address_of(client: tuple[str, int] | None) -> str:
    """Return the address of `client`, of IPv6 the network; empty for a connection without one."""
    if client is None:
        return ""
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0])
    except ValueError:
        return client[0]
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), PREFIX_BITS), strict=False))
