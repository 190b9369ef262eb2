"""HTTP/1.1 as a client: one connection per call, closed with it, which is how a call is cancelled."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httptools

READ_BYTES = 1 << 16
MOST_BYTES = 1 << 28  # of a body that is kept whole
MOST_HEAD = 1 << 18  # bytes of headers, and of what is around the parts of a body


class HttpResponse:
    """A response whose status is known and whose body arrives."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._has_head = self._is_complete = False
        self._without_body = 0  # bytes since the latest part of the body
        self.status = 0

    async def read_head(self) -> None:
        """Read until the status is known; raise OSError if the connection ends before."""
        while not self._has_head:
            await self._read()
        self.status = self._parser.get_status_code()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; raise OSError if the connection ends before the body does."""
        while True:
            parts, self._parts = self._parts, []
            for part in parts:
                yield part
            if self._is_complete and not self._parts:
                return
            if not self._parts:
                await self._read()

    async def body(self, most: int = MOST_BYTES) -> bytes:
        """Return the whole body; raise OSError as `chunks` does, and for one that is longer than `most` bytes."""
        whole = bytearray()
        async for part in self.chunks():
            whole += part
            if len(whole) > most:
                raise ConnectionAbortedError(f"the answer is longer than {most} bytes")
        return bytes(whole)

    async def lines(self, most: int = MOST_BYTES) -> AsyncIterator[bytes]:
        """Yield each line as it ends; raise OSError as `chunks` does, and for a line of more than `most` bytes."""
        held = bytearray()
        async for part in self.chunks():
            held += part
            if b"\n" in part:
                *ended, rest = bytes(held).split(b"\n")
                held = bytearray(rest)
                for line in ended:
                    yield line
            if len(held) > most:
                raise ConnectionAbortedError(f"a line of the answer is longer than {most} bytes")

    async def _read(self) -> None:
        data = await self._reader.read(READ_BYTES)
        if not data:
            raise ConnectionResetError("the server has closed the connection")
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise ConnectionAbortedError(f"the server does not answer in HTTP: {error}") from error
        self._without_body = 0 if self._parts else self._without_body + len(data)
        if self._without_body > MOST_HEAD:
            raise ConnectionAbortedError(f"the server sends more than {MOST_HEAD} bytes of headers")

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self._is_complete = True


class HttpClient:
    """Calls to the server at `address`, host:port, with a bearer token that it may require, and over TLS if given."""

    def __init__(self, address: str, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._tls = tls
        lines = [f"Host: {address}", "Connection: close", "Content-Type: application/json"]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        self._lines = lines

    @asynccontextmanager
    async def call(self, method: str, path: str, body: bytes = b"") -> AsyncIterator[HttpResponse]:
        """Send a request; leaving the context closes the connection. Raises OSError if there is no answer."""
        reader, writer = await asyncio.open_connection(self._host.strip("[]"), self._port, ssl=self._tls)
        try:
            lines = [f"{method} {path} HTTP/1.1", *self._lines, f"Content-Length: {len(body)}", "", ""]
            writer.write("\r\n".join(lines).encode() + body)
            response = HttpResponse(reader)
            await response.read_head()
            yield response
        finally:
            writer.transport.abort()  # over TLS `close` waits for the other side, maybe longer than the loop runs
