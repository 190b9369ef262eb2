"""Errors over HTTP: one table of status codes, and the contents of an error's body in each API's form."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
    ThrottledMemory,
    ThrottledTenant,
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
    """The path exists, for other methods."""

    def __init__(self, path: str, methods: Sequence[str], got: str) -> None:
        super().__init__(f"{path[:128]} is for {' and '.join(methods)}, got {got}")
        self.methods = methods


class BodyTooLarge(InvalidRequest):
    """The body has more bytes than a request may have."""


class UnsupportedMediaType(InvalidRequest):
    """The body is not in the form in which this gateway reads bodies."""


class HeadTooLarge(InvalidRequest):
    """The head of the request, its trailers or the head of a chunk has more bytes than it may have."""


class RequestTimeout(InvalidRequest):
    """The request has not arrived in time."""


class PreviousResponseNotFound(InvalidRequest):
    """The request continues a response that is not stored, or belongs to somebody else."""


class ResponseNotFound(InvalidRequest):
    """The response is not stored, or belongs to somebody else."""


class Status(NamedTuple):
    """The form of an error over HTTP: the status, and the `type` and `code` of a body as OpenAI's API has them."""

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
    PreviousResponseNotFound: Status(400, INVALID, "previous_response_not_found"),
    Unauthenticated: Status(401, INVALID, "invalid_api_key"),
    PermissionDenied: Status(403, "permission_error", "permission_denied"),
    ResponseNotFound: Status(404, INVALID, "response_not_found"),
    UnknownModel: Status(404, INVALID, "model_not_found"),
    UnknownEndpoint: Status(404, INVALID, "unknown_endpoint"),
    MethodNotAllowed: Status(405, INVALID, "method_not_allowed"),
    RequestTimeout: Status(408, INVALID, "request_timeout"),
    BodyTooLarge: Status(413, INVALID, "request_too_large"),
    UnsupportedMediaType: Status(415, INVALID, "unsupported_media_type"),
    HeadTooLarge: Status(431, INVALID, "headers_too_large"),
    ThrottledUser: Status(429, RATE_LIMIT, "throttled_user"),
    ThrottledApp: Status(429, RATE_LIMIT, "throttled_app"),
    ThrottledTenant: Status(429, RATE_LIMIT, "throttled_tenant"),
    ThrottledMemory: Status(429, RATE_LIMIT, "throttled_memory"),
    ClientLimit: Status(429, RATE_LIMIT, "client_limit"),
    Cancelled: Status(499, "request_cancelled", "cancelled"),
    Internal: Status(500, SERVER, "internal_error"),
    QueueFull: Status(503, SERVER, "queue_full"),
    Unavailable: Status(503, SERVER, "unavailable"),
    DeadlineExceeded: Status(504, SERVER, "deadline_exceeded"),
}


def status_of(error: FairleadError) -> Status:
    """Return what `error` is over HTTP."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def describe(error: FairleadError, names: Mapping[str, str]) -> tuple[str, str]:
    """Return the parameter that `error` is about, empty for none, and the message, which begins with it.

    `names` are the parameters of fields of the typed request. Another field's parameter has its name, without prefix.
    """
    if not (isinstance(error, InvalidRequest) and error.field):
        return "", error.message
    field = error.field
    parameter = names.get(field) or field.removeprefix("sampling.").removeprefix("prompt.chat.")
    return parameter, f"{parameter}: {error.message.removeprefix(f'{field}: ')}"


def forget_frames(error: FairleadError) -> None:
    """Drop where `error`, and what led to it, was raised.

    Those frames hold the body. A frame that holds its own error is freed by the garbage collector alone, which counts
    objects and no bytes: a hundred bodies would wait for it.
    """
    step: BaseException | None = error
    while step is not None:
        step.__traceback__ = None
        step = step.__context__


def error_headers(error: FairleadError) -> Headers:
    """Return the headers that name the time until a retry, in whole seconds and in milliseconds, or what is expected
    instead."""
    if isinstance(error, MethodNotAllowed):
        return [(b"allow", ", ".join(error.methods).encode())]  # RFC 9110 §15.5.6
    if isinstance(error, Unauthenticated):
        return [(b"www-authenticate", b"Bearer")]  # RFC 9110 §15.5.2
    if not isinstance(error, Retryable):
        return []
    milliseconds = round(error.retry_after * 1000)
    return [
        (b"retry-after", b"%d" % -(-milliseconds // 1000)),
        (b"retry-after-ms", b"%d" % milliseconds),
    ]
