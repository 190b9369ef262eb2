"""One HTTP connection, within bounds that uvicorn does not have."""

import asyncio

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from fairlead.errors import InvalidRequest
from gateway.http.dialect import OPENAI

MAX_HEAD = 64 * 1024  # bytes: request line and headers, or trailers
MAX_CONNECTIONS = 8192


class HttpConnection(HttpToolsProtocol):
    """Bounds how large the head of a request is and how long it may take, and how many connections there are.

    The parser keeps what it has of a head, or of trailers, until they end: what is counted are bytes that bring neither
    an end nor a part of a body. Of a request that is refused before it has arrived the rest is thrown away as it comes.
    """

    def __init__(self, config: Config, state: ServerState, seconds: float) -> None:
        super().__init__(config, state, {})
        self._seconds = seconds
        self._head = 0  # bytes
        self._limit: asyncio.TimerHandle | None = None
        self._lost = self.loop.create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._stop_waiting()
        self._lost.set_result(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._head += len(data)
        super().data_received(data)
        if self._head > MAX_HEAD and not self.transport.is_closing():
            self._refuse(b"431 Request Header Fields Too Large", f"headers have at most {MAX_HEAD} bytes")

    def on_message_begin(self) -> None:
        """See httptools."""
        super().on_message_begin()
        self.scope["state"].update(abort=self.transport.abort, lost=self._lost)
        self._await_head()

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._head = 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        self._head = 0
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """See uvicorn: an answer is written."""
        super().on_response_complete()
        if self.cycle.more_body and not self.transport.is_closing():
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """See uvicorn."""
        self._refuse(b"400 Bad Request", "the request is not valid HTTP")

    def _await_head(self) -> None:
        self._stop_waiting()
        self._limit = self.loop.call_later(self._seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _give_up(self) -> None:
        self._limit = None
        self._refuse(b"408 Request Timeout", f"the request did not arrive within {self._seconds:g} s")

    def _refuse(self, status: bytes, message: str) -> None:
        """End the connection; with an answer, unless it would stand in the middle of another one."""
        if self.cycle is not None:
            self.transport.abort()
            return
        body = OPENAI.error_body(InvalidRequest(message), "")
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % (status, len(body))
        self.transport.write(head + b"connection: close\r\n\r\n" + body)
        self.transport.close()
