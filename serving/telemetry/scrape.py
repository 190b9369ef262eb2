"""A minimal HTTP server for Prometheus: GET /metrics only."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from serving.config import ConfigError
from serving.rpc.address import listening_hosts

log = logging.getLogger(__name__)
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
REQUEST_SECONDS = 5.0
MAX_REQUEST_BYTES = 16 * 1024
MOST_CONNECTIONS = 32  # above it the oldest goes


class ScrapeServer:
    """An HTTP server on the event loop that answers with the result of `expose`, one request per connection."""

    def __init__(self, listen: str, expose: Callable[[], str]) -> None:
        self._listen = listen
        self._expose = expose
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}  # the oldest first

    async def start(self) -> None:
        """Listen; raise ConfigError if that is not possible."""
        try:
            port = int(self._listen.rpartition(":")[2])
            self._server = await asyncio.start_server(
                self._answer, listening_hosts(self._listen), port, limit=MAX_REQUEST_BYTES
            )
        except (OSError, ValueError) as error:
            raise ConfigError(f"metrics: cannot listen on {self._listen}: {error}") from error

    @property
    def port(self) -> int | None:
        """The port on which the server listens; None before `start`."""
        return self._server.sockets[0].getsockname()[1] if self._server and self._server.sockets else None

    async def stop(self) -> None:
        """Close the listener."""
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > MOST_CONNECTIONS:
            next(iter(self._open)).transport.abort()
        try:
            await self._answer_one(reader, writer)
        finally:
            del self._open[writer]

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            contextlib.closing(writer),
            contextlib.suppress(OSError, EOFError, TimeoutError, asyncio.LimitOverrunError),
        ):
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                method, _, rest = head.partition(b" ")
                path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
                writer.write(self._response(method, path))
                await writer.drain()

    def _response(self, method: bytes, path: bytes) -> bytes:
        if path != b"/metrics":
            return _message("404 Not Found", "text/plain", "there is /metrics only\n")
        if method != b"GET":
            return _message("405 Method Not Allowed", "text/plain", "GET only\n")
        return _message("200 OK", CONTENT_TYPE, self._expose())


def _message(status: str, kind: str, text: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
