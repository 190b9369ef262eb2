"""One HTTP request: its headers, its body within bounds, and the way back to its caller."""

from codecs import BOM_UTF8
from collections.abc import Mapping

from fairlead.errors import Cancelled, FairleadError
from gateway.http.asgi import Event, Headers, Receive, Scope, Send
from gateway.http.connection import HttpConnection
from gateway.http.dialect import dialect_of
from gateway.http.errors import BodyTooLarge, error_headers, forget_frames
from gateway.tenants import API_KEY, USER, Credentials, ambiguous
from serving.rpc.channel import MAX_REQUEST_BYTES
from serving.rpc.message_body_limiter import MessageBodyLimiter

JSON = (b"content-type", b"application/json")


class HttpRequest:
    """One request of a connection; header names are in lower case, and of one given twice the last counts, or none."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.is_head = scope["method"] == "HEAD"  # then it is answered as GET, and uvicorn omits the body
        self.method: str = "GET" if self.is_head else scope["method"]
        self.path = "/" + "/".join(filter(None, scope["path"].split("/")))  # of a base URL with a slash, too
        self.scheme: str = scope["scheme"]
        self.query: str = scope["query_string"].decode("latin-1")
        fields = [(name.decode("latin-1"), value.decode(errors="replace")) for name, value in scope["headers"]]
        self.headers = dict(fields)
        self.dialect = dialect_of(self.path)
        self.common_headers: Headers = []  # of every answer to this request
        self.has_begun = False  # the answer's head is sent
        self.send = send
        self.connection: HttpConnection = scope["state"]["connection"]
        self.credentials = _credentials(self.headers, ambiguous(fields))
        user = USER if self.credentials.user else ""  # it counts, and no field of the body
        if header := self.credentials.ambiguous or user:
            self.dialect = self.dialect.renamed({f"metadata.{header}": header})
        # The name of those who take turns together: the holders of a key, or without one an address.
        self.payer = self.credentials.authorization or self.connection.address
        self._receive = receive
        self._client = scope["client"]

    @property
    def is_preflight(self) -> bool:
        """Whether a browser asks if a page may send a request."""
        return self.method == "OPTIONS" and "access-control-request-method" in self.headers

    async def body(self, bodies: MessageBodyLimiter) -> bytes:
        """Read the body, in its turn among all that arrive; what is to be made of a large one must be made at once.

        Raises BodyTooLarge, QueueFull for one that does not arrive in time, and Cancelled.
        """
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > MAX_REQUEST_BYTES:  # said to be: not a byte of it is read
            raise BodyTooLarge(f"a body has at most {MAX_REQUEST_BYTES} bytes, got {length}")
        host, port = self._client or ("", 0)
        if self.connection.has_arrived:  # it waits for nothing and needs no place
            data = await self._read()
        else:
            data = await bodies.arrive(f"{host}:{port}", self._read)
        await bodies.turns.turn(self.payer, len(data))
        return data.removeprefix(BOM_UTF8)  # RFC 8259 §8.1: PowerShell and others write one

    async def begin(self, status: int, headers: Headers) -> None:
        """Send the head of the answer."""
        self.has_begun = True
        headers = [*headers, *self.common_headers]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def respond(self, status: int, body: bytes, headers: Headers) -> None:
        """Send the whole answer, JSON."""
        length = (b"content-length", b"%d" % len(body))
        await self.begin(status, [JSON, length, *headers])
        await self.send({"type": "http.response.body", "body": body})

    async def respond_empty(self, headers: Headers) -> None:
        """Send an answer that consists of headers."""
        await self.begin(204, headers)
        await self.send({"type": "http.response.body", "body": b""})

    async def refuse(self, error: FairleadError, request_id: str, headers: Headers) -> None:
        """Send `error` as the answer to the request that is known as `request_id`."""
        forget_frames(error)
        body = self.dialect.error_body(error, request_id)
        await self.respond(self.dialect.status(error), body, [*headers, *error_headers(error)])

    async def _read(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            event: Event = await self._receive()
            if event["type"] == "http.disconnect":
                raise Cancelled("the caller is gone")
            parts.append(event["body"])
            size += len(parts[-1])
            if size > MAX_REQUEST_BYTES:
                raise BodyTooLarge(f"a body has at most {MAX_REQUEST_BYTES} bytes, got {size} so far")
            if not event["more_body"]:
                return b"".join(parts)


def _credentials(headers: Mapping[str, str], ambiguous: str) -> Credentials:
    """Return the credentials that the caller sends. Some clients send their API key as `x-api-key`."""
    key = headers.get(API_KEY)
    return Credentials(
        authorization=headers.get("authorization") or (f"Bearer {key}" if key else ""),
        user=headers.get(USER, ""),
        traceparent=headers.get("traceparent", ""),
        request_id=headers.get("x-request-id", ""),
        ambiguous=ambiguous,
    )
