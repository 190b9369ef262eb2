"""One HTTP connection, within bounds that uvicorn does not have."""

import asyncio
import urllib.parse

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from fairlead.errors import InvalidRequest
from gateway.http.cycle import HTTP_1_0, HttpCycle
from gateway.http.dialect import OPENAI
from gateway.http.gathering_transport import GatheringTransport

MAX_HEAD = 64 * 1024  # bytes: request line and headers, or trailers
MAX_CONNECTIONS = 8192
MAX_PIPELINED = 64  # requests of a connection that wait for the one before them


class HttpConnection(HttpToolsProtocol):
    """Bounds how large the head of a request is and how long it may take, and how many connections there are.

    The parser keeps what it has of a head, or of trailers, until they end: what is counted are bytes that bring neither
    an end nor a part of a body. Of a request that is refused before it has arrived the rest is thrown away as it comes.

    A connection ends when its caller sends many requests at once, and when the caller reads nothing for
    `reader_seconds` of what waits to be sent.
    """

    def __init__(self, config: Config, state: ServerState, seconds: float, reader_seconds: float) -> None:
        super().__init__(config, state, {})
        self._seconds = seconds
        self._reader_seconds = reader_seconds
        self._head = 0  # bytes
        self._limit: asyncio.TimerHandle | None = None
        self._reader_limit: asyncio.TimerHandle | None = None
        self._answering: HttpCycle | None = None  # `cycle` is the last request, which may wait for this one
        self.lost: asyncio.Future[None] = self.loop.create_future()  # done when the connection is gone

    @property
    def is_writable(self) -> bool:
        """Whether the network has taken what was written before; a connection that ends takes everything."""
        return not self.flow.write_paused or self.transport.is_closing()

    @property
    def has_arrived(self) -> bool:
        """Whether the request that is being answered is here to its end."""
        return self._answering is not None and not self._answering.more_body

    def write_chunk(self, data: bytes) -> None:
        """Write a part of an answer whose head is written and names no length, without the steps of ASGI."""
        assert self._answering is not None
        self.transport.write(self._answering.framed(data))

    def abort(self) -> None:
        """Break the connection."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(GatheringTransport(transport, self.loop))
        if len(self.connections) > MAX_CONNECTIONS:
            self.abort()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._stop_waiting()
        self._stop_awaiting_reader()
        self.lost.set_result(None)
        if self._answering is not None:
            self._answering.disconnected = True
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._unset_keepalive_if_required()
        self._head += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(b"400 Bad Request", "the request is not valid HTTP")
        if self._head > MAX_HEAD and not self.transport.is_closing():
            self._refuse(b"431 Request Header Fields Too Large", f"headers have at most {MAX_HEAD} bytes")

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_awaiting_reader()

    def on_message_begin(self) -> None:
        """See httptools; raises ValueError, with which the parser ends the connection."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError(f"at most {MAX_PIPELINED} requests may wait for the one before them")
        super().on_message_begin()
        self.scope["state"].update(connection=self)
        self._await_head()

    def on_headers_complete(self) -> None:
        """See httptools. A request with an Upgrade is begun by its second parsing, without it."""
        self._head = 0
        self._stop_waiting()
        if self._is_upgrade:
            return
        is_waiting = self.cycle is not None and not self.cycle.response_complete
        self.cycle = self._new_cycle()
        if is_waiting:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
        else:
            self._start_asgi_task(self.cycle, self.app)

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        self._head = 0
        self._stop_waiting()
        if not self._is_upgrade:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """See uvicorn: an answer is written."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_reader()
        elif self.cycle.more_body:
            self._await_head()

    def timeout_keep_alive_handler(self) -> None:
        """See uvicorn: the connection is idle."""
        super().timeout_keep_alive_handler()
        self._await_reader()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        assert isinstance(cycle, HttpCycle)
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _is_upgrade(self) -> bool:
        """Whether the request that is parsed asks for another protocol; CONNECT counts as none, and is refused."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's first

    def _head_without_upgrade(self) -> bytes:
        """Return the head that was parsed last as if it had no Upgrade, which may be ignored (RFC 9110, 7.8).

        The parser stops after a head with an Upgrade, and takes what follows for the other protocol.
        """
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        fields = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        return b"".join([line, *fields, b"\r\n"])

    def _new_cycle(self) -> HttpCycle:
        """Complete the scope of the request whose head has arrived; raises HttpParserInvalidURLError."""
        url, version = httptools.parse_url(self.url), self.parser.get_http_version()
        raw_path = url.path or b"/"
        self.scope["method"] = self.parser.get_method().decode()
        self.scope["http_version"] = version
        self.scope["path"] = urllib.parse.unquote(raw_path.decode("ascii"))
        self.scope["raw_path"] = raw_path
        self.scope["query_string"] = url.query or b""
        return HttpCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue and version != HTTP_1_0,
            keep_alive=self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )

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

    def _await_reader(self) -> None:
        """Abort unless some of what waits to be sent is read in time; called when no more is written for now."""
        self._stop_awaiting_reader()
        unread = self.transport.get_write_buffer_size()
        self._reader_limit = self.loop.call_later(self._reader_seconds, self._check_reader, unread)

    def _stop_awaiting_reader(self) -> None:
        if self._reader_limit is not None:
            self._reader_limit.cancel()
            self._reader_limit = None

    def _check_reader(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._await_reader()
        else:
            self.abort()

    def _refuse(self, status: bytes, message: str) -> None:
        """End the connection; with an answer, unless it would stand in the middle of another one."""
        if self.cycle is not None:
            self.abort()
            return
        body = OPENAI.error_body(InvalidRequest(message), "")
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % (status, len(body))
        self.transport.write(head + b"connection: close\r\n\r\n" + body)
        self.transport.close()
        self._await_reader()
