"""Errors as OpenAI's API has them: one table of status codes, and the body that clients read."""

from typing import NamedTuple

import msgspec

from fairlead.errors import (
    Cancelled,
    ClientLimit,
    DeadlineExceeded,
    FairleadError,
    Internal,
    InvalidRequest,
    PermissionDenied,
    QueueFull,
    Retryable,
    ThrottledApp,
    ThrottledUser,
    TooLong,
    Unauthenticated,
    Unavailable,
)
from gateway.http.asgi import Headers
from gateway.upstream.members import UnknownModel


class UnknownEndpoint(InvalidRequest):
    """The gateway has no endpoint at the path of the request."""


class MethodNotAllowed(InvalidRequest):
    """The path exists, for another method."""


class BodyTooLarge(InvalidRequest):
    """The body has more bytes than a request may have."""


class Status(NamedTuple):
    """What an error is over HTTP: the status, and `type` and `code` of the error's body."""

    status: int
    type: str
    code: str


INVALID = "invalid_request_error"
RATE_LIMIT = "rate_limit_error"
SERVER = "server_error"
# The nearest class counts: a subclass that is not here has its parent's.
STATUSES: dict[type[FairleadError], Status] = {
    InvalidRequest: Status(400, INVALID, "invalid_request"),
    TooLong: Status(400, INVALID, "context_length_exceeded"),
    Unauthenticated: Status(401, INVALID, "invalid_api_key"),
    PermissionDenied: Status(403, "permission_error", "permission_denied"),
    UnknownModel: Status(404, INVALID, "model_not_found"),
    UnknownEndpoint: Status(404, INVALID, "unknown_endpoint"),
    MethodNotAllowed: Status(405, INVALID, "method_not_allowed"),
    BodyTooLarge: Status(413, INVALID, "request_too_large"),
    ThrottledUser: Status(429, RATE_LIMIT, "throttled_user"),
    ThrottledApp: Status(429, RATE_LIMIT, "throttled_app"),
    ClientLimit: Status(429, RATE_LIMIT, "client_limit"),
    Cancelled: Status(499, "request_cancelled", "cancelled"),
    Internal: Status(500, SERVER, "internal_error"),
    QueueFull: Status(503, SERVER, "queue_full"),
    Unavailable: Status(503, SERVER, "unavailable"),
    DeadlineExceeded: Status(504, SERVER, "deadline_exceeded"),
}
# Fields of the typed request, and what they are called where OpenAI's clients set them.
PARAMETERS = {
    "prompt.text": "prompt",
    "prompt.token_ids.packed": "prompt",
    "metadata.x-fairlead-user": "user",
    "app": "x-fairlead-app",
    "interaction.id": "x-fairlead-interaction",
    "interaction.token": "x-fairlead-interaction",
}


def status_of(error: FairleadError) -> Status:
    """Return what `error` is over HTTP."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def error_body(error: FairleadError) -> bytes:
    """Return `error` as JSON, in OpenAI's form."""
    status, message, parameter = status_of(error), error.message, None
    if isinstance(error, InvalidRequest) and error.field:
        parameter = parameter_of(error.field)
        message = f"{parameter}: {message.removeprefix(f'{error.field}: ')}"
    if isinstance(error, TooLong):  # by these words clients know it, and shorten what they sent
        message = f"This request exceeds the model's maximum context length. {message}"
    described = {"message": message, "type": status.type, "param": parameter, "code": status.code}
    return msgspec.json.encode({"error": described})


def error_headers(error: FairleadError) -> Headers:
    """Return what tells a client when to try again, in whole seconds and in milliseconds."""
    if not isinstance(error, Retryable):
        return []
    milliseconds = round(error.retry_after * 1000)
    return [
        (b"retry-after", b"%d" % -(-milliseconds // 1000)),
        (b"retry-after-ms", b"%d" % milliseconds),
    ]


def parameter_of(field: str) -> str:
    """Return what a field of the typed request is called in OpenAI's API."""
    return PARAMETERS.get(field) or field.removeprefix("sampling.").removeprefix("prompt.chat.")
