"""What no client sends: it costs bounded memory, ends with a 4xx, and harms nobody else."""

import json
import socket
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import pytest

from gateway.http.framing import MAX_HEAD
from serving.rpc.channel import MAX_REQUEST_BYTES
from tests.services import Process, eventually
from tests.unit.gateway.http.http_client import CHAT, HELLO, TEXT, HttpClient

POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
MIB = 1 << 20
LAST = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def answer_to(http: HttpClient, parts: Iterable[bytes]) -> bytes:
    """All that the gateway sends to whoever sends `parts`, until it closes the connection."""
    with http.connect() as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has been refused
        received = b""
        try:
            while part := connection.recv(65536):
                received += part
        except ConnectionResetError:
            pass
        return received


def repeated(first: bytes, part: bytes, total: int) -> Iterable[bytes]:
    yield first
    for _ in range(total // len(part)):
        yield part


@pytest.mark.parametrize(
    ("first", "part"),
    [
        (POST, b"x-%05d: y\r\n" % 1 * 5000),
        (POST + b"x: ", b"y" * 65536),
        (POST, b"y" * 65536),
        (b"GET /", b"y" * 65536),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"x-%05d: y\r\n" % 1 * 5000),
        (CHUNKED + b"2\r\n{}\r\n0\r\nx: ", b"y" * 65536),
        (CHUNKED + b"2;", b"y" * 65536),
    ],
    ids=["headers", "a header", "a name", "a path", "trailers", "a trailer", "an extension"],
)
def test_a_flood_of_headers(shared: tuple[Process, HttpClient], first: bytes, part: bytes) -> None:
    gateway, http = shared
    gateway.begin_peak()
    before = gateway.resident
    answer = answer_to(http, repeated(first, part, 64 * MIB))
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 503")), answer[:200]
    assert gateway.peak < before + 16
    assert http.chat().status == 200


def test_a_head_within_the_bound_is_read(http: HttpClient) -> None:
    assert (
        http.post(
            CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, x="y" * (MAX_HEAD // 2)
        ).status
        == 200
    )


@pytest.mark.parametrize("head", [b"", b"POST", POST, POST + b"content-length: 10\r\n\r\n12345", CHUNKED + b"5\r\nabc"])
def test_a_request_that_never_ends(http: HttpClient, head: bytes) -> None:
    """The gateway of these tests gives a request one second to arrive."""
    answer = answer_to(http, [head])
    assert answer.startswith((b"HTTP/1.1 408", b"HTTP/1.1 503")), answer
    assert http.chat().status == 200


def test_a_body_that_is_too_large_is_not_read(shared: tuple[Process, HttpClient]) -> None:
    gateway, http = shared
    before = gateway.resident
    gateway.begin_peak()
    said = POST + b"content-length: %d\r\n\r\n" % (100 * MIB)
    for answer in (
        answer_to(http, chain([said], [b"x" * MIB] * 100, [LAST])),
        answer_to(http, chain([CHUNKED], [b"100000\r\n" + b"x" * MIB + b"\r\n"] * 100, [b"0\r\n\r\n" + LAST])),
    ):
        assert answer.startswith(b"HTTP/1.1 413"), answer[:200]
        assert b'"request_too_large"' in answer
        assert b"HTTP/1.1 200" in answer, "the rest was thrown away, and the connection is as good as before"
    assert gateway.peak < before + 24
    assert http.post(CHAT, b" " * MAX_REQUEST_BYTES).status == 400, "one that is not is read"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x00\xa5\x01\x00\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/models HTTP/1.1\r\n\r\n",
        POST + b"content-length: 2\r\ncontent-length: 4\r\n\r\n{}",
        POST + b"content-length: -1\r\n\r\n",
        POST + b"transfer-encoding: xchunked\r\n\r\n{}",
        POST + b"transfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n",
        b"GET /health HTTP/2.0\r\nhost: a\r\n\r\n",
        POST + b" folded: x\r\n\r\n",
        POST + b"na\x00me: x\r\n\r\n",
        CHUNKED + b"zz\r\n",
        CHUNKED + b"ffffffffffffffffffff\r\n",
    ],
)
def test_bytes_that_are_not_http_are_refused(http: HttpClient, request_bytes: bytes) -> None:
    answer = answer_to(http, [request_bytes])
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert b"connection: close" in answer
    assert answer.count(b"HTTP/1.1 ") <= 1, "nothing behind it is taken for a request"
    assert http.chat().status == 200


@pytest.mark.parametrize(
    ("request_bytes", "reason"),
    [
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", "Invalid method encountered"),
        (POST + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}", "Duplicate Content-Length"),
        (POST + b"name : x\r\n\r\n", "Invalid header token"),
    ],
)
def test_a_refusal_of_bytes_names_the_reason(http: HttpClient, request_bytes: bytes, reason: str) -> None:
    assert f"the request is not valid HTTP: {reason}" in answer_to(http, [request_bytes]).decode()


@pytest.mark.parametrize(
    "request_bytes",
    [
        POST + b"x: " + b"y" * 70_000 + b"\r\ncontent-length: 2\r\n\r\n{}",
        POST + b"x: y\r\n" * 10_000 + b"\r\n",
        POST + b"x: " + b"y" * MAX_HEAD + b"\r\n\r\n",
        b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        CHUNKED + b"2;" + b"y" * 100_000 + b"\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b"2\r\n{}\r\n0\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
    ids=["a header", "headers", "just above", "a path", "an extension", "a trailer"],
)
def test_a_head_that_is_too_large_in_one_piece(http: HttpClient, request_bytes: bytes) -> None:
    answer = answer_to(http, [request_bytes])
    assert answer.startswith(b"HTTP/1.1 431"), answer
    assert b"connection: close" in answer
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_broken_request_behind_another_one_is_refused_after_it(http: HttpClient) -> None:
    body = b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}'
    answer = answer_to(http, [POST + b"content-length: %d\r\n\r\n" % len(body) + body + b"garbage\r\n\r\n"])
    whole, _, refusal = answer.partition(b"HTTP/1.1 400")
    assert whole.startswith(b"HTTP/1.1 200 OK")
    assert b"connection: close" not in whole
    assert b"connection: close" in refusal


def test_trailers_are_no_headers(http_with_keys: HttpClient) -> None:
    """A proxy that checks the headers does not look at them."""
    trailers = b"0\r\nauthorization: Bearer plain\r\n\r\n"
    answer = answer_to(http_with_keys, [CHUNKED + b"2\r\n{}\r\n" + trailers + LAST])
    assert answer.startswith(b"HTTP/1.1 401")


def test_names_and_values_that_are_not_text(http: HttpClient) -> None:
    head = b"GET /v1/models/%ff%00 HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer \xff\xfe\r\n"
    assert answer_to(http, [head + b"connection: close\r\n\r\n"]).startswith(b"HTTP/1.1 404")


def test_slow_bodies_do_not_keep_others_out(shared: tuple[Process, HttpClient]) -> None:
    gateway, http = shared
    before = gateway.resident
    gateway.begin_peak()
    slow = [http.connect() for _ in range(60)]
    try:
        for connection in slow:
            connection.sendall(POST + b"content-length: %d\r\n\r\n" % MAX_REQUEST_BYTES + b" " * 100_000)
        assert http.chat().status == 200
    finally:
        for connection in slow:
            connection.close()
    assert gateway.peak < before + 100


@pytest.mark.parametrize(
    "body",
    [
        b'{"n": 128, "messages": [{"role": "user", "content": "%s"}]}' % (b"x" * (4 * MIB - 100)),
        b'{"messages": [%s{"role": ""}]}' % (b'{"role": ""},' * 300_000),
        b'{"messages": [{"role": "user", "content": [%s{"type": "text"}]}]}' % (b'{"type": "text"},' * 200_000),
        b'{"messages": [], "tools": [%s[]]}' % (b"[]," * 1_300_000),
    ],
    ids=["copies", "messages", "parts", "lists"],
)
def test_bodies_that_grow_when_they_are_read(shared: tuple[Process, HttpClient], body: bytes) -> None:
    gateway, http = shared
    before = gateway.resident
    gateway.begin_peak()
    assert http.post(CHAT, body).status == 400
    assert gateway.peak < before + 150
    assert http.chat().status == 200


def test_a_pipelined_request_waits_for_the_one_before(http: HttpClient) -> None:
    body = b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}'
    answer = answer_to(http, [POST + b"content-length: %d\r\n\r\n" % len(body) + body + LAST])
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.index(b'"chat.completion"') < answer.index(b"\r\n\r\n{}")


def test_a_flood_of_pipelined_requests(shared: tuple[Process, HttpClient]) -> None:
    """Nobody reads the answers, and nobody needs a key for them."""
    gateway, http = shared
    before = gateway.resident
    gateway.begin_peak()
    for _ in range(4):
        with http.connect() as connection:
            connection.setblocking(False)
            connection.send(b"GET / HTTP/1.1\r\n\r\n" * 50_000)  # as much of it as the network takes
            eventually(lambda: not is_open(connection, http.port), "it is refused")
    assert gateway.peak < before + 16
    assert http.chat().status == 200
    assert not [line for line in gateway.lines() if line["level"] == "error"]


@pytest.mark.parametrize("wishes", [[b"", b"", b""], [b"", b"connection: close\r\n"]], ids=["kept", "closing"])
def test_a_connection_that_nobody_reads(shared: tuple[Process, HttpClient], wishes: Sequence[bytes]) -> None:
    """The gateway of these tests waits two seconds for a reader. An answer here has 1.5 MB."""
    gateway, http = shared
    body = json.dumps({"prompt": ["\1" * 1900] * 128, "max_tokens": 1, "echo": True}).encode()
    ask = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n" % (TEXT.encode(), len(body))
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", http.port))
        connection.sendall(b"".join(ask + wish + b"\r\n" + body for wish in wishes) + LAST)
        eventually(lambda: not is_open(connection, http.port), "it is given up")
    assert http.chat().status == 200
    assert not [line for line in gateway.lines() if line["level"] == "error"]


def is_open(connection: socket.socket, port: int) -> bool:
    """Whether the gateway's end, at `port`, is open: it may close before the client's end can hear of it."""
    return f":{port:04X} 0100007F:{connection.getsockname()[1]:04X} 01 " in Path("/proc/net/tcp").read_text()


def test_no_more_choices_are_begun_once_one_is_refused(shared: tuple[Process, HttpClient]) -> None:
    gateway, http = shared
    assert http.post(CHAT, {"messages": HELLO, "model": "none", "n": 128}, x_request_id="many").status == 404
    assert http.post(CHAT, {"messages": HELLO, "max_tokens": 1}, x_request_id="next").status == 200

    def ended(caller: str) -> int:
        return sum(line["caller_request_id"] == caller for line in gateway.logged("call ended"))

    eventually(lambda: ended("next"), "the later call is logged")
    assert 1 <= ended("many") < 8
