"""The operators' page over HTTP: its files, its access, its events, and the calls that are tried on it."""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec

from fairlead.errors import FairleadError, PermissionDenied, Unavailable
from gateway.http.asgi import Headers, Receive, Scope, Send
from gateway.http.browser_policy import BrowserPolicy
from gateway.http.event_stream import HEADERS as STREAM_HEADERS
from gateway.http.request import JSON, HttpRequest
from gateway.http.server import Application
from gateway.page.access import PageAccess
from gateway.page.calls import calls_named, calls_of
from gateway.page.collector import Collector, NoPlace, Viewer
from gateway.page.controls import NoControls, press
from gateway.page.files import PageFile, page_files
from gateway.page.login_limiter import LoginLimiter
from gateway.usage import UsageSource
from serving.rpc.message_body_limiter import MessageBodyLimiter
from serving.telemetry.traces import Traces
from serving.usage_report import as_csv, first_day, usage_report

log = logging.getLogger(__name__)
USAGE = "/usage"
TRIED = "/v1/chat/completions"
RECONNECT = b"retry: 1000\n\n"  # milliseconds
# Nothing but this origin's own files is loaded, nothing inline is run, and no other page may frame this one.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY: Headers = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
Endpoint = Callable[[HttpRequest], Awaitable[None]]


class PageApplication:
    """Answers every request of the operators' page; an ASGI application.

    The files are open to all; all else is open to viewers who have logged in. Calls that are tried are answered by
    `api`, the gateway's public HTTP application, with the credentials that the viewer enters: a login is no API key.
    """

    def __init__(
        self,
        access: PageAccess,
        collector: Collector,
        traces: Traces,
        api: Application,
        bodies: MessageBodyLimiter,
        controls: str,
        browsers: BrowserPolicy,
        usage: UsageSource,
    ) -> None:
        self._browsers = browsers
        self._usage = usage
        self._logins = LoginLimiter()
        self._files: Mapping[str, PageFile] = page_files()
        self._access = access
        self._collector = collector
        self._traces = traces
        self._api = api
        self._bodies = bodies
        self._controls = controls
        self._endpoints: dict[tuple[str, str], Endpoint] = {
            ("GET", "/events"): self._events,
            ("GET", "/calls"): self._calls,
            ("GET", USAGE): self._tell_usage,
            ("GET", "/controls"): self._press,
            ("POST", "/controls"): self._press,
            ("POST", "/logout"): self._log_out,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. An error in it is ours: it ends this request, and nothing else."""
        request = HttpRequest(scope, receive, send)
        try:
            await self._answer(request, scope, receive, send)
        except PermissionDenied as error:  # another page asks
            await _refuse(request, 403, error.message)
        except Unavailable as error:
            await _refuse(request, 503, error.message)
        except FairleadError as error:  # the body did not arrive, or a parameter cannot be
            await _refuse(request, 400, error.message)
        except Exception:
            log.exception("request of the page failed", extra={"path": request.path})
            if request.has_begun:
                request.connection.abort()
            else:
                await _refuse(request, 500, "internal error of the gateway; see its log")

    async def _answer(self, request: HttpRequest, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = request.method, request.path
        self._browsers.check_host(request)
        if method == "POST":
            self._browsers.check_origin(request)
        if method == "GET" and path in self._files:
            await self._send_file(request, self._files[path])
        elif (method, path) == ("POST", "/login"):
            await self._log_in(request)
        elif (method, path) == ("GET", "/access"):
            await self._tell_access(request)
        elif (method, path) != ("POST", TRIED) and (method, path) not in self._endpoints:
            await _refuse(request, 404, "there is no such page")
        elif not self._is_open(request):
            await _refuse(request, 401, "log in with the admin secret")
        elif path == TRIED:
            await self._api(scope, receive, send)
        else:
            await self._endpoints[method, path](request)

    def _is_open(self, request: HttpRequest) -> bool:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if request.path == USAGE and scheme.lower() == "bearer":  # programs have no cookie
            return self._access.opens(key)
        return self._access.is_valid(request.headers.get("cookie", ""), time.time())

    async def _send_file(self, request: HttpRequest, file: PageFile) -> None:
        headers = [*SECURITY, (b"etag", file.etag.encode()), (b"cache-control", b"no-cache")]
        if request.headers.get("if-none-match") == file.etag:
            await _respond(request, 304, b"", headers)
        else:
            await _respond(request, 200, file.content, [(b"content-type", file.kind), *headers])

    async def _log_in(self, request: HttpRequest) -> None:
        now = time.monotonic()
        if wait := self._logins.wait(request.connection.address, now):
            await _refuse(request, 429, f"too many wrong keys; try again in {math.ceil(wait)} s")
            return
        key = (await request.body(self._bodies)).decode(errors="replace")
        if self._access.opens(key):
            await _respond(request, 204, b"", [(b"set-cookie", self._access.cookie(time.time()).encode())])
        else:
            if self._logins.failed(request.connection.address, now):
                log.warning("the page was refused: wrong key", extra={"address": request.connection.address})
            await _refuse(request, 401, "this is neither the admin secret nor the key of the page")

    async def _log_out(self, request: HttpRequest) -> None:
        await _respond(request, 204, b"", [(b"set-cookie", self._access.ended().encode())])

    async def _tell_access(self, request: HttpRequest) -> None:
        await _respond_json(request, {"open": self._is_open(request)})

    async def _events(self, request: HttpRequest) -> None:
        try:
            with self._collector.viewing() as viewer:
                await self._stream(request, viewer)
        except NoPlace as error:
            await _refuse(request, 503, str(error))

    async def _stream(self, request: HttpRequest, viewer: Viewer) -> None:
        request.connection.lost.add_done_callback(lambda _: viewer.end())
        await request.begin(200, [*SECURITY, *STREAM_HEADERS])
        await request.send({"type": "http.response.body", "body": RECONNECT, "more_body": True})
        if not request.is_head:
            async for event in viewer.events():
                await request.send({"type": "http.response.body", "body": event, "more_body": True})
        await request.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _calls(self, request: HttpRequest) -> None:
        asked = parse_qs(request.query)
        if "id" in asked:
            await _respond_json(request, calls_named(self._traces, asked["id"][0]))
        else:
            await _respond_json(request, calls_of(self._traces, asked.get("client", [""])[0]))

    async def _tell_usage(self, request: HttpRequest) -> None:
        asked = parse_qs(request.query)
        report = usage_report(await self._usage.rows(first_day(asked.get("since", [""])[0])))
        if asked.get("format") == ["csv"]:
            await _respond(
                request, 200, as_csv(report).encode(), [(b"content-type", b"text/csv; charset=utf-8"), *SECURITY]
            )
        else:
            await _respond_json(request, report)

    async def _press(self, request: HttpRequest) -> None:
        name = (await request.body(self._bodies)).decode(errors="replace") if request.method == "POST" else ""
        try:
            buttons = await press(self._controls, name) if self._controls else b"[]"
        except NoControls as error:
            await _refuse(request, 503, str(error))
        else:
            await _respond(request, 200, buttons, [JSON, *SECURITY])


async def _respond(request: HttpRequest, status: int, body: bytes, headers: Headers) -> None:
    length: Headers = [] if status in (204, 304) else [(b"content-length", b"%d" % len(body))]
    stored: Headers = [] if any(name == b"cache-control" for name, _ in headers) else [(b"cache-control", b"no-store")]
    await request.begin(status, [*headers, *length, *stored])
    await request.send({"type": "http.response.body", "body": body})


async def _respond_json(request: HttpRequest, value: Any) -> None:
    await _respond(request, 200, msgspec.json.encode(value), [JSON, *SECURITY])


async def _refuse(request: HttpRequest, status: int, message: str) -> None:
    body = msgspec.json.encode({"error": message})
    await _respond(request, status, body, [JSON, *SECURITY])
