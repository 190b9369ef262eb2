"""The dialects of the APIs: how each of them writes errors, names requests and keeps a stream alive."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from fairlead.errors import FairleadError, TooLong
from gateway.http.asgi import Headers
from gateway.http.errors import describe, error_headers, status_of
from gateway.http.sse import PING, named_event

MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
DETOKENIZE = "/detokenize"
# Fields of the typed request, and what they are called where clients set them. Others lose their prefix.
HEADERS = {
    "app": "x-fairlead-app",
    "interaction.id": "x-fairlead-interaction",
    "interaction.token": "x-fairlead-interaction",
}
OPENAI_NAMES = {
    **HEADERS,
    "prompt.text": "prompt",
    "prompt.token_ids.packed": "prompt",
    "metadata.x-fairlead-user": "user",
    "sampling.json_object": "response_format",
    "sampling.json_schema": "response_format",
    "sampling.regex": "structured_outputs.regex",
    "sampling.choice": "structured_outputs.choice",
    "sampling.grammar": "structured_outputs.grammar",
}
ANTHROPIC_NAMES = {
    **HEADERS,
    "metadata.x-fairlead-user": "metadata.user_id",
    "sampling.stop": "stop_sequences",
    "sampling.json_schema": "output_config.format",
}
ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
UNAVAILABLE, OVERLOADED = 503, 529  # Anthropic's API has a status of its own for it


class Dialect(Protocol):
    """The form that all answers of an API share."""

    @property
    def ping(self) -> bytes:
        """The bytes that are written into a stream to keep it alive."""

    def renamed(self, names: Mapping[str, str]) -> "Dialect":
        """Return the dialect with other names of some of the typed request's fields."""

    def status(self, error: FairleadError) -> int:
        """Return the HTTP status of `error`."""

    def error_body(self, error: FairleadError, request_id: str) -> bytes:
        """Return `error` as JSON."""

    def naming(self, request_id: str) -> Headers:
        """Return the headers that tell the caller the id of its request."""


class OpenAIDialect:
    """Errors as OpenAI's APIs have them; implements Dialect. `names` are those of the typed request's fields."""

    ping = PING

    def __init__(self, names: Mapping[str, str] = OPENAI_NAMES) -> None:
        self._names = names

    def renamed(self, names: Mapping[str, str]) -> "OpenAIDialect":
        """See Dialect."""
        return OpenAIDialect({**self._names, **names})

    def status(self, error: FairleadError) -> int:
        """See Dialect."""
        return status_of(error).status

    def error_body(self, error: FairleadError, request_id: str) -> bytes:
        """See Dialect. The request's id stands in the headers alone."""
        return msgspec.json.encode({"error": self.described(error)})

    def described(self, error: FairleadError) -> dict[str, str | None]:
        """Return the fields of `error`."""
        status, (parameter, message) = status_of(error), describe(error, self._names)
        if isinstance(error, TooLong):  # by these words LiteLLM and LangChain know it, and shorten what they sent
            message = f"This model's maximum context length is exceeded ({status.code}). {message}"
        return {"message": message, "type": status.type, "param": parameter or None, "code": status.code}

    def naming(self, request_id: str) -> Headers:
        """See Dialect."""
        return [(b"x-request-id", request_id.encode())]


class AnthropicDialect:
    """Errors as Anthropic's API has them; implements Dialect. `names` are those of the typed request's fields."""

    ping = named_event(b"ping", b'{"type":"ping"}')

    def __init__(self, names: Mapping[str, str] = ANTHROPIC_NAMES) -> None:
        self._names = names

    def renamed(self, names: Mapping[str, str]) -> "AnthropicDialect":
        """See Dialect."""
        return AnthropicDialect({**self._names, **names})

    def status(self, error: FairleadError) -> int:
        """See Dialect."""
        status = status_of(error).status
        return OVERLOADED if status == UNAVAILABLE else status

    def error_body(self, error: FairleadError, request_id: str) -> bytes:
        """See Dialect."""
        parameter, message = describe(error, self._names)
        if isinstance(error, TooLong) and parameter == "prompt":  # clients know it by these words
            message = f"prompt is too long: {message.removeprefix('prompt: ')}"
        described = {"type": ANTHROPIC_TYPES.get(self.status(error), "invalid_request_error"), "message": message}
        return msgspec.json.encode({"type": "error", "error": described, "request_id": request_id})

    def naming(self, request_id: str) -> Headers:
        """See Dialect."""
        return [(b"x-request-id", request_id.encode()), (b"request-id", request_id.encode())]


OPENAI = OpenAIDialect()
ANTHROPIC = AnthropicDialect()
OPENAI_RESPONSES = OpenAIDialect(
    {
        **OPENAI_NAMES,
        "prompt.chat": "input",
        "prompt.chat.messages": "input",
        "prompt": "input",
        "sampling.max_tokens": "max_output_tokens",
        "sampling.json_object": "text.format",
        "sampling.json_schema": "text.format",
    }
)
TOKENS = OpenAIDialect({**OPENAI_NAMES, "prompt.token_ids.packed": "tokens"})
DIALECTS: Sequence[tuple[str, Dialect]] = (
    (MESSAGES, ANTHROPIC),
    (RESPONSES, OPENAI_RESPONSES),
    (DETOKENIZE, TOKENS),
)


def dialect_of(path: str) -> Dialect:
    """Return the dialect of `path` and of whatever lies below it."""
    for begin, dialect in DIALECTS:
        if path == begin or path.startswith(f"{begin}/"):
            return dialect
    return OPENAI


class HttpRefusal(NamedTuple):
    """Status, headers and body of a whole answer."""

    status: int
    headers: Headers
    body: bytes


def refusal(error: FairleadError, path: str) -> HttpRefusal:
    """Return `error` as the API at `path` tells it."""
    dialect = dialect_of(path)
    body = dialect.error_body(error, "")
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *error_headers(error)]
    return HttpRefusal(dialect.status(error), headers, body)
