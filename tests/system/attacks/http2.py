"""HTTP/2 as an attacker speaks it: calls that are begun and never ended."""

import asyncio
import struct
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4  # a setting
MAX_FRAME = 16 * 1024
Headers = tuple[tuple[bytes, bytes], ...]


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """RFC 9113, section 4.1."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def field(name: bytes, value: bytes) -> bytes:
    """A header as a literal that is not indexed (RFC 7541, section 6.2.2), shorter than 127 bytes."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request_headers(method: str, *metadata: tuple[bytes, bytes]) -> bytes:
    """The header block that begins a gRPC call of `method`."""
    headers: Headers = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", method.encode()),
        (b":authority", b"attacked"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *metadata,
    )
    return b"".join(field(*header) for header in headers)


class Connection(asyncio.Protocol):
    """Keeps to flow control and answers pings, so that nothing but the server's own limits ends its calls."""

    def __init__(self, window: int) -> None:
        self._window_of_answers = window
        self.ended: set[int] = set()  # streams that the server has ended
        self.sent = 0  # bytes of bodies
        self.is_lost = False
        self._news = asyncio.Event()
        self._buffer = b""
        self._next = 1
        self._initial = self._window = 65_535
        self._windows: dict[int, int] = {}
        self._bodies: dict[int, memoryview] = {}
        self._transport: asyncio.Transport

    @classmethod
    async def to(cls, address: str, window: int = 65_535) -> Self:
        """Connected to `address`, host:port, and ready to take `window` bytes of each answer."""
        host, _, port = address.rpartition(":")
        _, connection = await asyncio.get_running_loop().create_connection(lambda: cls(window), host, int(port))
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, self._window_of_answers)
        transport.write(PREFACE + frame(SETTINGS, 0, 0, settings))

    def begin(self, method: str, body: bytes, *metadata: tuple[bytes, bytes]) -> int:
        """Call `method` with `body`, as far as the server's windows allow, and never say that it has ended."""
        stream, self._next = self._next, self._next + 2
        self._windows[stream] = self._initial
        self._bodies[stream] = memoryview(body)
        self._write(frame(HEADERS, END_HEADERS, stream, request_headers(method, *metadata)))
        self._push(stream)
        return stream

    async def until_ended(self, streams: set[int]) -> None:
        """Return when the server has ended all of `streams`."""
        while not streams <= self.ended:
            self._news.clear()
            await self._news.wait()

    def close(self) -> None:
        self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def _write(self, data: bytes) -> None:
        if not self.is_lost:
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 9:
            length = int.from_bytes(self._buffer[:3])
            if len(self._buffer) < 9 + length:
                return
            kind, flags, stream = struct.unpack(">BBI", self._buffer[3:9])
            payload, self._buffer = self._buffer[9 : 9 + length], self._buffer[9 + length :]
            self._received(kind, flags, stream, payload)

    def _received(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        match kind:
            case 4 if not flags & ACK:
                self._configured(dict(struct.iter_unpack(">HI", payload)))
                self._write(frame(SETTINGS, ACK, 0, b""))
            case 6 if not flags & ACK:
                self._write(frame(PING, ACK, 0, payload))
            case 8 if stream:
                self._windows[stream] = self._windows.get(stream, 0) + int.from_bytes(payload)
                self._push(stream)
            case 8:
                self._window += int.from_bytes(payload)
                for waiting in list(self._bodies):
                    self._push(waiting)
            case 3:
                self._end(stream)
            case _ if kind in (DATA, HEADERS) and flags & END_STREAM:
                self._end(stream)

    def _configured(self, settings: dict[int, int]) -> None:
        change = settings.get(INITIAL_WINDOW_SIZE, self._initial) - self._initial
        self._initial += change
        for stream in self._windows:
            self._windows[stream] += change
            self._push(stream)

    def _push(self, stream: int) -> None:
        """Send what the windows allow of a body."""
        body = self._bodies.get(stream, memoryview(b""))
        while part := body[: max(0, min(MAX_FRAME, self._window, self._windows[stream]))]:
            self._write(frame(DATA, 0, stream, bytes(part)))
            self._bodies[stream] = body = body[len(part) :]
            self._window -= len(part)
            self._windows[stream] -= len(part)
            self.sent += len(part)
        if not body:
            self._bodies.pop(stream, None)

    def _end(self, stream: int) -> None:
        self.ended.add(stream)
        self._news.set()
        self._bodies.pop(stream, None)
