"""uvicorn's protocol, with bounds on the head of a request."""

from abc import abstractmethod

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from fairlead.errors import InvalidRequest
from gateway.http.head import check_head, check_number, check_size, without_upgrade


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
            fault = cause if isinstance(cause, InvalidRequest) else InvalidRequest("the request is not valid HTTP")
            raise fault from None
        check_size(self.head)

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
            check_number(self.headers)

    def on_headers_complete(self) -> None:
        """See httptools. A request with an Upgrade is begun by its second parsing, without it."""
        self.head, self._has_head = 0, True
        if not self._is_upgrade:
            check_head(self.url, self.parser.get_http_version(), self.headers)
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
            return without_upgrade(method, self.url, version, self.headers) + data[upgrade.args[0] :]
        return b""


def _parser(protocol: BoundedProtocol) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
    return parser
