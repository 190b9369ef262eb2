"""HTTP of one connection: uvicorn's protocol with bounds on heads, and answers in the caller's version of HTTP."""

import time
import urllib.parse
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence, Sized
from email.utils import formatdate
from functools import lru_cache
from typing import Any

import httptools
from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent, HTTPScope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HEADER_VALUE_RE, STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from fairlead.errors import FairleadError, InvalidRequest
from gateway.http.asgi import Headers
from gateway.http.dialect import refusal
from gateway.http.errors import HeadTooLarge, MethodNotAllowed

HTTP_1_0 = "1.0"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"  # any number of them may stand before an answer (RFC 9110, 15.2)
COMMENT = b":\n\n"  # of a stream of events


def begin_of_head(status: int) -> bytes:
    """Return the status line of an answer that is written now, and its date (RFC 9110, 6.6.1)."""
    return STATUS_LINE[status] + _date(int(time.time()))


@lru_cache(maxsize=1)  # it is made once a second
def _date(seconds: int) -> bytes:
    return f"date: {formatdate(seconds, usegmt=True)}\r\n".encode()


class HttpCycle(RequestResponseCycle):
    """A request that is answered when the ones before it are.

    An answer without a length is chunked for callers of HTTP/1.1; for those of HTTP/1.0, which has no chunks, it ends
    with the connection (RFC 9112, 6.1 and 6.3). `is_last` says when an answer begins whether the connection ends with
    it; the answer then says so, and no other answer ends the connection. `has_read` is called after a read of the body.
    """

    def __init__(self, *, is_last: Callable[[], bool], has_read: Callable[[], None], **options: Any) -> None:
        super().__init__(**options)
        self._is_last = is_last
        self._has_read = has_read
        self._fault: FairleadError | None = None  # of the body

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Have `app` answer; it handles its errors itself, and is cancelled only when the server has stopped."""
        try:
            await app(self.scope, self.receive, self.send)
        finally:
            if not self.response_complete:
                self.transport.close()

    async def receive(self) -> ASGIReceiveEvent:
        """See ASGI; raises the error with which the body has ended."""
        event = await super().receive()
        self._has_read()
        if self._fault is not None:
            raise self._fault
        return event

    async def send(self, message: ASGISendEvent) -> None:
        """See ASGI; returns once the network has taken what was written before."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected or self.response_complete:
            return
        if message["type"] == "http.response.start":
            self.write_head(message["status"], list(message["headers"]))
        elif message["type"] == "http.response.body":
            self.write_body(message["body"], has_more=message.get("more_body", False))

    def end_body(self, fault: FairleadError) -> None:
        """End a body that cannot be read; the answer is the last of its connection."""
        self._fault, self.keep_alive = fault, False
        self.body.clear()
        self.message_event.set()

    def refuse(self, error: FairleadError) -> None:
        """Write a whole answer, the last one, in the application's place."""
        self.end_body(error)
        status, headers, body = refusal(error, self.scope["path"])
        self.write_head(status, headers)
        self.write_body(body, has_more=False)

    def write_nothing(self) -> None:
        """Write what the caller passes over, before its answer or between the events of a stream."""
        if not self.response_started:
            self.transport.write(CONTINUE)
        elif self.chunked_encoding:
            self.transport.write(self.framed(COMMENT))

    def framed(self, data: bytes) -> bytes:
        """Return a part of an answer without a length as it is written to this caller; `data` is not empty."""
        return b"%x\r\n%b\r\n" % (len(data), data) if self.chunked_encoding else data

    def write_head(self, status: int, headers: Headers) -> None:
        """Write the head at once; raises ValueError."""
        self.response_started = True
        self.waiting_for_100_continue = False
        is_old = self.scope["http_version"] == HTTP_1_0
        ends_by_itself = b"content-length" in dict(headers) or self._has_no_body(status)
        self.chunked_encoding = not (ends_by_itself or is_old)
        self.keep_alive = self.keep_alive and (ends_by_itself or not is_old) and not self._is_last()
        head = [begin_of_head(status)]
        for name, value in headers:
            if HEADER_VALUE_RE.search(value):
                raise ValueError(f"the value of the header {name!r} has control characters")
            head.append(b"%b: %b\r\n" % (name, value))
        if self.chunked_encoding:
            head.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            head.append(b"connection: close\r\n")
        elif is_old:
            head.append(b"connection: keep-alive\r\n")
        self.transport.write(b"".join([*head, b"\r\n"]))

    def write_body(self, data: bytes, *, has_more: bool) -> None:
        """Write a part of the body at once."""
        if self.scope["method"] != "HEAD":
            end = b"0\r\n\r\n" if self.chunked_encoding and not has_more else b""
            if written := (self.framed(data) if data else b"") + end:
                self.transport.write(written)
        if not has_more:
            self.response_complete = True
            self.body.clear()
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _has_no_body(self, status: int) -> bool:
        return self.scope["method"] == "HEAD" or status in (204, 304)


MAX_HEAD = 16 * 1024  # bytes: request line and headers, or trailers, or the head of a chunk
MAX_FIELDS = 128  # headers: short ones take many times their bytes
VERSIONS = (HTTP_1_0, "1.1")
METHODS = ("GET", "POST", "DELETE")
Fields = Sequence[tuple[bytes, bytes]]


class BoundedProtocol(HttpToolsProtocol):
    """Parses requests, with `begin_request` for each whose head has arrived and is in order.

    The parser keeps what it has of a head, or of trailers, until they end: what is counted are bytes that bring neither
    an end nor a part of a body. An Upgrade to another protocol is ignored.
    """

    def __init__(self, config: Config, state: ServerState) -> None:
        super().__init__(config, state, {})
        self.url = b""  # of the request that is parsed
        self.head = 0  # bytes of a head that has not ended
        self.headers = []  # of the request that is parsed, as far as they have arrived
        self._is_upgrade = False  # it asks for another protocol

    @abstractmethod
    def begin_request(self) -> None:
        """Begin the request whose head has arrived; raises InvalidRequest."""

    def parse(self, data: bytes) -> None:
        """Parse what has arrived; raises InvalidRequest."""
        self.head += len(data)
        try:
            while data:
                data = self._feed(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, InvalidRequest):
                raise cause from None
            reason = "" if isinstance(error, httptools.HttpParserCallbackError) else f": {error}"
            raise InvalidRequest(f"the request is not valid HTTP{reason}") from None
        if self.head:
            _check_size(self.head, self.headers)

    def forget(self) -> None:
        """Free what the parser has kept; it must not be in use."""
        self.head, self.headers = 0, []
        self.parser = _parser(self)

    def on_headers_complete(self) -> None:
        """See httptools. A request with an Upgrade is begun by its second parsing, without it.

        Trailers are ignored: a proxy may have checked the headers alone.
        """
        self.head = 0
        if self.parser.get_method() == b"CONNECT":  # what follows would be of another protocol
            raise MethodNotAllowed(self.url.decode("latin-1"), METHODS, "CONNECT")
        self._is_upgrade = self.parser.should_upgrade()
        if not self._is_upgrade:
            _check_head(self.url, self.parser.get_http_version(), self.headers)
            self.begin_request()
            self.headers = deque(maxlen=0)  # type: ignore[assignment]  # takes the trailers, and keeps none

    def on_chunk_complete(self) -> None:
        """See httptools."""
        self.head = 0

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self.head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        self.head = 0
        if not self._is_upgrade:
            super().on_message_complete()

    def _feed(self, data: bytes) -> bytes:
        """Return what is to be parsed next: the parser stops after a head with an Upgrade."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            method, version = self.parser.get_method(), self.parser.get_http_version()
            self.parser = _parser(self)
            return _without_upgrade(method, self.url, version, self.headers) + data[upgrade.args[0] :]
        return b""


def _parser(protocol: BoundedProtocol) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
    return parser


def _check_head(url: bytes, version: str, fields: Fields) -> None:
    """Raise InvalidRequest for a head that proxies and servers could read differently, and HeadTooLarge."""
    size, hosts, coding = len(url), 0, b"chunked"
    for name, value in fields:
        size += len(name) + len(value)
        hosts += name == b"host"
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            coding = value
    _check_size(size, fields)
    if version not in VERSIONS:
        raise InvalidRequest(f"the version of HTTP must be 1.1 or 1.0, got {version}")
    if hosts > 1 or (hosts == 0 and version != HTTP_1_0):
        raise InvalidRequest(f"a request has one Host header, got {hosts}")
    if coding != b"chunked":
        raise InvalidRequest(f"transfer-encoding: must be chunked, got {coding[:32].decode('latin-1')!r}")


def _check_size(size: int, fields: Sized) -> None:
    """Raise HeadTooLarge for more headers than MAX_FIELDS, or more bytes than MAX_HEAD."""
    if len(fields) > MAX_FIELDS:
        raise HeadTooLarge(f"a request has at most {MAX_FIELDS} headers, got {len(fields)}")
    if size > MAX_HEAD:
        raise HeadTooLarge(f"headers have at most {MAX_HEAD} bytes, got {size}")


def complete_scope(scope: HTTPScope, method: bytes, url: bytes, version: str) -> None:
    """Set what the request line says; raises InvalidRequest and UnicodeDecodeError.

    A target with a host counts in place of the header (RFC 9112, 3.2.2).
    """
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError:
        raise InvalidRequest(f"the target must be a path or a URL, got {url[:128].decode('latin-1')!r}") from None
    if parsed.host is not None:
        host = b"[%b]" % parsed.host if b":" in parsed.host else parsed.host
        scope["headers"] = [*scope["headers"], (b"host", b"%b:%d" % (host, parsed.port) if parsed.port else host)]
    raw_path = parsed.path or b"/"
    scope["method"] = method.decode()
    scope["http_version"] = version
    scope["path"] = urllib.parse.unquote(raw_path.decode("ascii"))
    scope["raw_path"] = raw_path
    scope["query_string"] = parsed.query or b""


def _without_upgrade(method: bytes, url: bytes, version: str, fields: Fields) -> bytes:
    """Return a head as it would be without its Upgrade, which may be ignored (RFC 9110, 7.8)."""
    line = b"%b %b HTTP/%b\r\n" % (method, url, version.encode())
    return b"".join([line, *(b"%b: %b\r\n" % field for field in fields if field[0] != b"upgrade"), b"\r\n"])
