"""POST over connections that are kept, one for each thread."""

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from fairlead.errors import InvalidRequest

KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))  # seconds, tries
NO_TLS = ("WRONG_VERSION_NUMBER", "CERTIFICATE_VERIFY_FAILED")  # why no later attempt will do


class HttpAnswer(NamedTuple):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class HttpPost:
    """A poster to the server at `url`. An answer may take hours; a server that has gone is noticed by keepalives."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._kind, self._host, self._port, self._prefix = _server(url)
        self._headers = {"content-type": "application/json", **headers}
        self._local = threading.local()

    def post(self, path: str, body: bytes) -> HttpAnswer:
        """Return the answer; raise OSError or http.client.HTTPException if there is none.

        Raise InvalidRequest if the server speaks another protocol.
        """
        connection = self._connection()
        try:
            if connection.sock is None:
                _connect(connection)
            connection.request("POST", self._prefix + path, body, self._headers)
            response = connection.getresponse()
            content = response.read()
        except BaseException as error:
            self._local.connection = None
            connection.close()
            if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
                raise InvalidRequest(f"--url: {self._host}:{self._port} answers, but is no HTTP server") from None
            if isinstance(error, ssl.SSLError) and error.reason in NO_TLS:
                raise InvalidRequest(f"--url: https to {self._host}:{self._port}: {error.strerror}") from None
            raise
        return HttpAnswer(response.status, {name.lower(): value for name, value in response.getheaders()}, content)

    def _connection(self) -> http.client.HTTPConnection:
        found: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self._kind(self._host, self._port)
        return found


def _connect(connection: http.client.HTTPConnection) -> None:
    connection.connect()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _server(url: str) -> tuple[type[http.client.HTTPConnection], str, int | None, str]:
    """Return how and where to connect, and what begins each path; raise InvalidRequest."""
    expected = f"--url: expected http://HOST:PORT or https://HOST:PORT, got {url!r}"
    try:
        split = urlsplit(url)
        port, host = split.port, split.hostname or ""
        host.encode("idna")
    except ValueError as error:
        raise InvalidRequest(f"{expected}: {error}") from error
    is_plain = url.isprintable() and split.path.isascii() and not set(url) & set(" @?#")
    if split.scheme not in ("http", "https") or not host or not is_plain:
        raise InvalidRequest(expected)
    kind = http.client.HTTPSConnection if split.scheme == "https" else http.client.HTTPConnection
    return kind, host, port, split.path.rstrip("/").removesuffix("/v1")
