"""A stream of server-sent events, whose status is decided by its first byte."""

from collections.abc import Callable

from gateway.http.asgi import Headers
from gateway.http.request import HttpRequest

HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy that gathers events defeats the purpose
]


class EventStream:
    """The answer of one request; `headers` are asked for when the first event is written."""

    def __init__(self, request: HttpRequest, headers: Callable[[], Headers]) -> None:
        self._request = request
        self._connection = request.connection
        self._send = request.send
        self._headers = headers
        self._has_begun = False  # whether the head has been written
        self._is_quiet = False  # nothing has been written since the last `ping`

    @property
    def is_open(self) -> bool:
        """Whether `write_now` may be called: the stream has begun, and the network has taken what was sent before."""
        return self._has_begun and self._connection.is_writable

    def write_now(self, data: bytes) -> None:
        """Send whole events at once, or nothing if there is none. The stream must be open."""
        if not data:  # an empty chunk would end the answer
            return
        self._is_quiet = False
        self._connection.write_chunk(data)

    async def write(self, data: bytes) -> None:
        """Send whole events; returns when the network has taken what was sent before."""
        self._is_quiet = self._is_quiet and not data
        if not self._request.has_begun:
            await self._begin()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def ping(self) -> None:
        """Send a ping if nothing was sent since the last call, so that no proxy closes the stream as idle."""
        if self._is_quiet:
            await self.write(self._request.dialect.ping)
        self._is_quiet = True

    async def close(self, data: bytes) -> None:
        """Send the last events, and end the answer."""
        if not self._request.has_begun:
            await self._begin()
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    def break_off(self, data: bytes) -> None:
        """Send the last events and end the connection, or break it if the answer has not begun.

        The network has not taken what was sent before.
        """
        if self._has_begun:
            self._connection.break_off(data)
        else:
            self._connection.abort()

    async def _begin(self) -> None:
        await self._request.begin(200, [*HEADERS, *self._headers()])
        self._has_begun = True
