"""Connections and what they have sent unread have one bound for all, and the address that takes most gives way."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from gateway.http import server
from gateway.http.asgi import Receive, Scope, Send
from gateway.http.framing import MAX_HEAD
from gateway.http.request import HttpRequest
from gateway.http.server import HttpServer
from tests.services import Process
from tests.unit.gateway.http.http_client import CHAT, HttpClient

MOST = 8
GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
KEYED = b"GET / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer k\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
MIB = 1 << 20


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer at once; whoever sends a key has a good one."""
    request = HttpRequest(scope, receive, send)
    if request.credentials.authorization:
        request.connection.trust()
    await request.respond(200, b"{}", [])


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", MOST)
    monkeypatch.setattr(server, "MAX_UNREAD", MOST * MAX_HEAD // 2)
    listener = HttpServer("127.0.0.1:0", answer, None, seconds=60, reader_seconds=60)
    await listener.start()
    assert listener.port is not None
    yield listener.port
    await listener.stop(0)


async def connect(port: int, address: str) -> Connection:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))


async def ask(connection: Connection, request: bytes) -> bytes:
    """The answer to a request, empty if the connection is closed."""
    reader, writer = connection
    with contextlib.suppress(ConnectionError):
        writer.write(request)
        await writer.drain()
        return await reader.readuntil(b"{}")
    return b""


async def is_closed(connection: Connection) -> bytes:
    with contextlib.suppress(ConnectionError):
        return await connection[0].read()
    return b""


async def test_idle_connections_of_strangers_give_way(port: int) -> None:
    friend = await connect(port, "127.0.0.3")
    assert b" 200 " in await ask(friend, KEYED)
    flood = [await connect(port, "127.0.0.2") for _ in range(MOST - 1)]
    for connection in flood:
        assert b" 200 " in await ask(connection, GET)
    honest = [await connect(port, "127.0.0.4") for _ in range(2)]
    for connection in (*honest, friend):
        assert b" 200 " in await ask(connection, GET)
    for connection in flood[:2]:
        assert await is_closed(connection) == b"", "the oldest of the address with most"
    for connection in flood[2:]:
        assert b" 200 " in await ask(connection, GET)
    for _, writer in (friend, *flood, *honest):
        writer.close()


async def test_unread_input_has_one_bound(port: int) -> None:
    """Heads of 12 KiB that do not end: of eight the bound holds five, and the others go, the oldest first."""
    part = b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * (3 * MAX_HEAD // 4)
    flood = [await connect(port, "127.0.0.2") for _ in range(MOST - 1)]
    for _, writer in flood:
        writer.write(part)
        await writer.drain()
    for connection in flood[:2]:
        refused = await is_closed(connection)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after" in refused
    honest = await connect(port, "127.0.0.4")
    honest[1].write(part)
    assert b" 200 " in await ask(honest, b"\r\n\r\n")
    assert b" 200 " in await ask(flood[-1], b"\r\n\r\n"), "a head that has a place may end"
    for _, writer in (*flood, honest):
        writer.close()


def test_bodies_wait_outside_until_they_are_asked_for(shared: tuple[Process, HttpClient]) -> None:
    gateway, http = shared
    before = gateway.resident
    gateway.begin_peak()
    head = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" % CHAT.encode()
    slow = [http.connect() for _ in range(400)]
    try:
        for connection in slow:
            connection.setblocking(False)
            connection.send(head + b"content-length: %d\r\n\r\n" % (4 * MIB) + b" " * 200_000)
        assert http.chat().status == 200
    finally:
        for connection in slow:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
    assert gateway.peak < before + 40
