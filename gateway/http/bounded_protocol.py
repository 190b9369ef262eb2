"""uvicorn's protocol, with bounds on the head of a request: its request line and headers."""

import urllib.parse
from abc import abstractmethod
from collections.abc import Sequence

import httptools
from uvicorn._types import HTTPScope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from fairlead.errors import InvalidRequest
from gateway.http.cycle import HTTP_1_0
from gateway.http.errors import HeadTooLarge

MAX_HEAD = 16 * 1024  # bytes: request line and headers, or trailers, or the head of a chunk
MAX_FIELDS = 128  # headers: short ones take many times their bytes
VERSIONS = (HTTP_1_0, "1.1")
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
        self._has_head = False  # the head of the request that is parsed has ended: further fields are trailers

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
        _check_size(self.head)

    def forget(self) -> None:
        """Free what the parser has kept; it must not be in use."""
        self.head, self.headers = 0, []
        self.parser = _parser(self)

    def on_message_begin(self) -> None:
        """See httptools."""
        super().on_message_begin()
        self._has_head = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools. Trailers are ignored: a proxy may have checked the headers alone."""
        if not self._has_head:
            super().on_header(name, value)
            if len(self.headers) > MAX_FIELDS:
                raise HeadTooLarge(f"a request has at most {MAX_FIELDS} headers")

    def on_headers_complete(self) -> None:
        """See httptools. A request with an Upgrade is begun by its second parsing, without it."""
        self.head, self._has_head = 0, True
        if not self._is_upgrade:
            _check_head(self.url, self.parser.get_http_version(), self.headers)
            self.begin_request()

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

    @property
    def _is_upgrade(self) -> bool:
        """Whether the request that is parsed asks for another protocol; CONNECT counts as none, and is refused."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

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
    _check_size(size)
    if version not in VERSIONS:
        raise InvalidRequest(f"the version of HTTP must be 1.1 or 1.0, got {version}")
    if hosts > 1 or (hosts == 0 and version != HTTP_1_0):
        raise InvalidRequest(f"a request has one Host header, got {hosts}")
    if coding != b"chunked":
        raise InvalidRequest(f"transfer-encoding: must be chunked, got {coding[:32].decode('latin-1')!r}")


def _check_size(size: int) -> None:
    """Raise HeadTooLarge for more bytes than MAX_HEAD."""
    if size > MAX_HEAD:
        raise HeadTooLarge(f"headers have at most {MAX_HEAD} bytes, got {size}")


def complete_scope(scope: HTTPScope, method: bytes, url: bytes, version: str) -> None:
    """Set what the request line says; raises HttpParserInvalidURLError and UnicodeDecodeError."""
    parsed = httptools.parse_url(url)
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
