"""What is where: the paths of the HTTP front."""

import logging
from collections.abc import Awaitable, Callable

import msgspec

from fairlead.errors import FairleadError, Internal, Unavailable
from gateway.admission import Admission
from gateway.call import new_id
from gateway.call_log import note_refusal
from gateway.core.client_limits import HeldBytesLimiter
from gateway.core.response_store import ResponseStore
from gateway.http.api import Api
from gateway.http.asgi import Receive, Scope, Send
from gateway.http.browser_policy import BrowserPolicy
from gateway.http.chat_completions import chat_completions
from gateway.http.completions import completions
from gateway.http.decoding import check_media_type
from gateway.http.dialect import DETOKENIZE, MESSAGES, RESPONSES
from gateway.http.errors import MethodNotAllowed, UnknownEndpoint
from gateway.http.generation_handler import DriverFactory, GenerationHandler
from gateway.http.messages import messages
from gateway.http.models import AnthropicModels, Models
from gateway.http.request import HttpRequest
from gateway.http.responses import ResponseEndpoints
from gateway.http.tokens import TokenEndpoints
from gateway.tokenization import Tokenization
from gateway.upstream.members import Members
from serving.rpc.message_body_limiter import MessageBodyLimiter
from serving.version import VERSION

log = logging.getLogger(__name__)
GENERATING: dict[str, Api] = {
    "/v1/chat/completions": chat_completions,
    "/v1/completions": completions,
    MESSAGES: messages,
}
MODELS = "/v1/models"
INDEX = ("/", "/v1")
KEYLESS = (*INDEX, "/health", "/version")


class HttpApplication:
    """Answers every request of the HTTP front; an ASGI application."""

    def __init__(
        self,
        members: Members,
        admission: Admission,
        tokenization: Tokenization,
        drive: DriverFactory,
        bodies: MessageBodyLimiter,
        held_outputs: HeldBytesLimiter,
        responses: ResponseStore,
        browsers: BrowserPolicy,
        page: Callable[[], str],
    ) -> None:
        self._members = members
        self._admission = admission
        self._drive = drive
        self._bodies = bodies
        self._held_outputs = held_outputs
        self._browsers = browsers
        self._page = page
        self._models = Models(members)
        self._anthropic_models = AnthropicModels(members)
        self._responses = ResponseEndpoints(responses, admission.identify_named)
        tokens = TokenEndpoints(tokenization, bodies, self._responses.api)
        self._counting: dict[str, Callable[[HttpRequest], Awaitable[bytes]]] = {
            "/tokenize": tokens.tokenize,
            DETOKENIZE: tokens.detokenize,
            f"{MESSAGES}/count_tokens": tokens.count,
            f"{RESPONSES}/input_tokens": tokens.count_input,
        }
        self._paths = [*GENERATING, RESPONSES, *self._counting, MODELS, "/health", "/version"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. An error in it is ours: it ends this request, and nothing else."""
        request = HttpRequest(scope, receive, send)
        request.common_headers = self._browsers.headers(request)
        try:
            self._browsers.check_host(request)
            if request.is_preflight:
                await request.respond_empty(self._browsers.preflight(request))
                return
            self._browsers.check_origin(request)
            if request.method == "POST":
                check_media_type(request.headers)
            await self._answering(request)
        except FairleadError as error:
            await _refuse(request, error, note_refusal(error))
        except Exception:
            log.exception("request failed", extra={"path": request.path})
            if request.has_begun:
                request.connection.abort()
            else:
                await _refuse(request, Internal("internal error of the gateway; see its log"), new_id())

    def _answering(self, request: HttpRequest) -> Awaitable[None]:
        """Return what answers a request; raises MethodNotAllowed."""
        api = self._responses.api(request.credentials) if request.path == RESPONSES else GENERATING.get(request.path)
        if api is not None:
            _check_method(request, "POST")
            handler = GenerationHandler(api, request, self._admission, self._drive, self._bodies, self._held_outputs)
            return handler.run()
        return self._answer(request)

    async def _answer(self, request: HttpRequest) -> None:
        count = self._counting.get(request.path)
        if count is not None:
            _check_method(request, "POST")
            body = await count(request)
        else:
            body = self._look_up(request)
        if request.path not in KEYLESS:
            request.connection.trust()
        await request.respond(200, body, request.dialect.naming(new_id()))

    def _look_up(self, request: HttpRequest) -> bytes:
        """Return what GET and DELETE answer; raises UnknownEndpoint, MethodNotAllowed and ResponseNotFound."""
        path = request.path
        if path.startswith(f"{RESPONSES}/") and path.count("/") == RESPONSES.count("/") + 1:
            return self._stored_response(request, path.rpartition("/")[2])
        name = path.removeprefix(f"{MODELS}/")
        if path not in (*KEYLESS, MODELS) and name == path:
            raise UnknownEndpoint(f"there is no endpoint {path[:128]!r}{self._meant(path)}")
        _check_method(request, "GET")
        if path in INDEX:
            return self._index()
        if path == "/health":
            return self._health()
        if path == "/version":
            return msgspec.json.encode({"version": VERSION})
        self._admission.identify(request.credentials)
        models = self._anthropic_models if "anthropic-version" in request.headers else self._models
        return models.all() if path == MODELS else models.one(name)

    def _stored_response(self, request: HttpRequest, response_id: str) -> bytes:
        _check_method(request, "GET", "DELETE")
        if request.method == "DELETE":
            return self._responses.delete(response_id, request.credentials)
        return self._responses.retrieve(response_id, request.credentials)

    def _index(self) -> bytes:
        """Return what is where, for somebody who looks with a browser; `page` is left out where there is none."""
        page = {"page": address} if (address := self._page()) else {}
        return msgspec.json.encode({"fairlead": VERSION, "paths": self._paths, **page})

    def _meant(self, path: str) -> str:
        """Return a question after the path that ends as `path` does: a base URL has one `/v1` too few or too many."""
        ends = [known for known in self._paths if path.lower().endswith(known.removeprefix("/v1"))]
        return f"; did you mean {max(ends, key=len)!r}?" if ends else ""

    def _health(self) -> bytes:
        """Return an empty object; raises Unavailable unless calls can be served."""
        if not len(self._members):
            raise Unavailable("no worker is attached yet")
        return b"{}"


def _check_method(request: HttpRequest, *methods: str) -> None:
    if request.method not in methods:
        raise MethodNotAllowed(request.path, methods, request.method)


async def _refuse(request: HttpRequest, error: FairleadError, request_id: str) -> None:
    await request.refuse(error, request_id, request.dialect.naming(request_id))
