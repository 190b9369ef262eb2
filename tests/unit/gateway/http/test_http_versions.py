"""Callers with an older version of HTTP, and callers that ask for another protocol (RFC 9110, RFC 9112)."""

import json
import socket
import time
from email.utils import parsedate_to_datetime

import pytest

from tests.unit.gateway.http.http_client import CHAT, HELLO, MESSAGES, RESPONSES, TEXT, HttpClient

H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQ\r\n"
UPGRADES = {
    "h2c": H2C,
    "websocket": b"connection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n",
    "TLS": b"upgrade: TLS/1.0\r\nConnection: upgrade\r\n",
    "several": b"upgrade: a\r\nupgrade: b, c\r\nconnection: upgrade\r\n",
}
BODIES = {
    CHAT: {"messages": HELLO, "max_tokens": 4},
    TEXT: {"prompt": "x", "max_tokens": 4},
    RESPONSES: {"input": "x", "max_output_tokens": 4},
    MESSAGES: {"messages": HELLO, "max_tokens": 4},
}


def request(path: str, fields: bytes, body: object, *, version: bytes = b"1.1", chunked: bool = False) -> bytes:
    """A request with a body in one chunk, or with a length."""
    data = json.dumps(body).encode()
    length = b"transfer-encoding: chunked\r\n" if chunked else b"content-length: %d\r\n" % len(data)
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if chunked else data
    head = b"POST %b HTTP/%b\r\nhost: localhost\r\ncontent-type: application/json\r\n" % (path.encode(), version)
    return head + length + fields + b"\r\n" + framed


def answer(connection: socket.socket) -> tuple[bytes, dict[bytes, bytes], bytes]:
    """The next answer on a connection: its status line, its headers, and its body by its length or to the end."""
    with connection.makefile("rb") as lines:
        status = lines.readline()
        headers = {}
        while line := lines.readline().rstrip():
            name, _, value = line.partition(b": ")
            headers[name] = value
        return status, headers, lines.read(int(headers.get(b"content-length", -1)))


@pytest.mark.parametrize("upgrade", UPGRADES.values(), ids=UPGRADES)
@pytest.mark.parametrize("path", BODIES)
def test_an_upgrade_is_ignored(http: HttpClient, path: str, upgrade: bytes) -> None:
    with http.connect() as connection:
        for chunked in (False, True):
            connection.sendall(request(path, upgrade, BODIES[path], chunked=chunked))
            status, headers, body = answer(connection)
            assert status == b"HTTP/1.1 200 OK\r\n", body
            assert b"upgrade" not in headers
        connection.sendall(b"GET /version HTTP/1.1\r\nhost: localhost\r\n" + upgrade + b"\r\n")
        assert answer(connection)[0] == b"HTTP/1.1 200 OK\r\n"


def test_an_upgrade_in_pieces_and_in_a_pipeline(http: HttpClient) -> None:
    asks = request(CHAT, H2C, BODIES[CHAT]) * 3
    with http.connect() as connection:
        for byte in asks[:600]:
            connection.sendall(bytes([byte]))
        connection.sendall(asks[600:] + b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        received = connection.makefile("rb").read()
    assert received.count(b"HTTP/1.1 200 OK") == 4
    assert received.endswith(b"{}")


def test_a_body_in_pieces_with_extensions_and_trailers(http: HttpClient) -> None:
    """Also pieces that bring no part of the body."""
    data = json.dumps(BODIES[CHAT]).encode()
    head = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" % CHAT.encode()
    chunks = b"".join(b"1;name=value\r\n%c\r\n" % byte for byte in data) + b"0\r\nx: y\r\n\r\n"
    with http.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(head + b"transfer-encoding: chunked\r\n\r\n")
        for byte in chunks:
            connection.sendall(bytes([byte]))
        assert answer(connection)[0] == b"HTTP/1.1 200 OK\r\n"


def test_connect_is_refused(http: HttpClient) -> None:
    """Once, and the connection ends: what follows would be another protocol."""
    for upgrade in (b"", H2C):
        for target in (b"localhost:1", b"/"):
            with http.connect() as connection:
                connection.sendall(b"CONNECT %b HTTP/1.1\r\nhost: localhost:1\r\n%b\r\n" % (target, upgrade))
                status, headers, body = answer(connection)
                assert (status[:12], headers[b"allow"]) == (b"HTTP/1.1 405", b"GET, POST, DELETE")
                assert b"got CONNECT" in body
                assert connection.recv(1) == b""


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        (b"http://localhost/health", 200, b"{}"),
        (b"http://[::1]:80/health", 200, b"{}"),
        (b"http://page.example/health", 403, b"'page.example' is no name"),
        (b"http://localhost:99999/health", 400, b"got 'http://localhost:99999/health'"),
        (b"http://[::1/health", 400, b"got 'http://[::1/health'"),
    ],
)
def test_a_target_with_a_host_counts_in_place_of_the_header(
    http: HttpClient, target: bytes, status: int, said: bytes
) -> None:
    """RFC 9112, 3.2.2."""
    with http.connect() as connection:
        connection.sendall(b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % target)
        line, _, body = answer(connection)
    assert line.startswith(b"HTTP/1.1 %d" % status)
    assert said in body


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_of_http_1_0_has_no_chunks(http: HttpClient, path: str) -> None:
    """It ends with the connection, also where the caller asked to keep it."""
    for fields in (b"", b"connection: keep-alive\r\n"):
        with http.connect() as connection:
            connection.sendall(request(path, fields, {**BODIES[path], "stream": True}, version=b"1.0"))
            status, headers, body = answer(connection)
        assert status == b"HTTP/1.1 200 OK\r\n"
        assert headers[b"connection"] == b"close"
        assert b"transfer-encoding" not in headers
        assert body.startswith((b"data: {", b"event: "))
        assert body.endswith(b"\n\n")
        assert all(line.startswith((b"data: ", b"event: ")) for line in body.splitlines() if line), "and no sizes"


@pytest.mark.parametrize(
    "ask",
    [
        request(CHAT, b"", BODIES[CHAT]),
        request(CHAT, b"connection: close\r\n", {**BODIES[CHAT], "stream": True}),
        request("/v1/nothing", b"", {}),
        b"no HTTP\r\n\r\n",
    ],
)
def test_every_answer_has_its_date(http: HttpClient, ask: bytes) -> None:
    before = int(time.time())
    with http.connect() as connection:
        connection.sendall(ask)
        _, headers, _ = answer(connection)
    date = headers[b"date"].decode()
    assert date.endswith(" GMT")
    assert before <= parsedate_to_datetime(date).timestamp() <= time.time()


@pytest.mark.parametrize("path", [CHAT, "/v1/nothing"])
def test_whole_answers_of_http_1_0(http: HttpClient, path: str) -> None:
    """A connection is kept where the caller asks for it, and the answer says so."""
    ask = request(path, b"expect: 100-continue\r\n", BODIES[CHAT], version=b"1.0")
    kept = request(path, b"connection: keep-alive\r\n", BODIES[CHAT], version=b"1.0")
    with http.connect() as connection:
        for _ in range(2):
            connection.sendall(kept)
            status, headers, body = answer(connection)
            assert status.split()[1] == (b"200" if path == CHAT else b"404")
            assert headers[b"connection"] == b"keep-alive"
            assert json.loads(body)
        connection.sendall(ask)
        status, headers, body = answer(connection)
        assert status.split()[1] == (b"200" if path == CHAT else b"404"), "it knows no 100 (Continue)"
        assert headers[b"connection"] == b"close"
        assert json.loads(body)
        assert connection.recv(1) == b""
