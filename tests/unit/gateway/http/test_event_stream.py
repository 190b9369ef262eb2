"""Events are written at once while the caller takes them, and wait in order while it does not."""

import asyncio

from uvicorn.config import Config
from uvicorn.server import ServerState

from gateway.core.connection_table import ConnectionTable
from gateway.http.asgi import Receive, Scope, Send
from gateway.http.connection import HttpConnection
from gateway.http.event_stream import EventStream
from gateway.http.request import HttpRequest
from tests.unit.gateway.http.wire import Wire


async def test_events_keep_their_order_whoever_writes_them() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        request = HttpRequest(scope, receive, send)
        stream, connection = EventStream(request, list), request.connection
        assert not stream.is_open, "the head is not written"
        await stream.write(b"1")
        assert stream.is_open
        stream.write_now(b"2")
        connection.pause_writing()
        assert not stream.is_open, "the caller does not take what was written"
        waiting = asyncio.create_task(stream.write(b"3"))
        await asyncio.sleep(0)
        assert not waiting.done()
        connection.resume_writing()
        await waiting
        stream.write_now(b"4")
        await stream.close(b"5")

    head, _, body = b"".join(await asked(answer)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"transfer-encoding: chunked" in head
    assert body == b"".join(b"1\r\n%d\r\n" % event for event in range(1, 6)) + b"0\r\n\r\n"


async def test_events_for_a_caller_that_is_gone_are_dropped() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        request = HttpRequest(scope, receive, send)
        stream = EventStream(request, list)
        await stream.write(b"1")
        request.connection.pause_writing()
        request.connection.abort()
        assert stream.is_open, "nobody waits for a caller that does not come back"
        stream.write_now(b"2")

    assert await asked(answer) == [b"<aborted>"], "nothing follows the end"


async def asked(application: object) -> list[bytes]:
    """Send a request to `application` over a connection without a network; return what was written to the wire."""
    config = Config(application, interface="asgi3", lifespan="off", ws="none", log_config=None)  # type: ignore[arg-type]
    config.load()
    wire, state = Wire(), ServerState()
    connection = HttpConnection(config, state, ConnectionTable(1, 1), seconds=60.0, reader_seconds=60.0)
    connection.connection_made(wire)
    connection.data_received(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
    [task] = state.tasks
    await task
    await asyncio.sleep(0)
    written = list(wire.events)
    connection.connection_lost(None)
    return written
