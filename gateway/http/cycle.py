"""One request of a connection and its answer, in the framing of the caller's version of HTTP."""

from collections.abc import Callable
from typing import Any

from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from fairlead.errors import FairleadError
from gateway.http.asgi import Headers
from gateway.http.dialect import refusal

HTTP_1_0 = "1.0"


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
        head = [STATUS_LINE[status]]
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
