"""The errors of services and of the SDK, one class for each outcome.

A service raises such an error; `fairlead.rpc.status` converts it to a gRPC status with rich details; the SDK converts
the status back to the same class. Each class has a fixed outcome, so an error is always counted under that outcome.
"""

import re
from collections.abc import Sequence
from typing import ClassVar

from fairlead.outcomes import Outcome

MOST_LISTED = 10
_FIELD = re.compile(r"(?:prompt|sampling)(?:\.\w{1,64}|\[\d{1,9}\]){0,8}(?=: )", re.ASCII)


class FairleadError(Exception):
    """The base of all errors: a request did not complete.

    `request_id` identifies the request in the gateway's logs and traces; it is empty if no request was sent.
    """

    outcome: ClassVar[Outcome] = Outcome.INTERNAL

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.request_id = ""

    def __str__(self) -> str:
        return f"{self.message} (request {self.request_id})" if self.request_id else self.message


class InvalidRequest(FairleadError):
    """A field of the request is invalid; `field` is its path in the request message."""

    outcome = Outcome.REJECTED_INVALID

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class TooLong(InvalidRequest):
    """The request can never be served by this model: it exceeds the context or the KV capacity."""

    outcome = Outcome.REJECTED_TOO_LONG


class Retryable(FairleadError):
    """The request is refused for now and may be repeated after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ThrottledUser(Retryable):
    """The pool is overloaded and the user has exceeded its limit of arrivals."""

    outcome = Outcome.THROTTLED_USER


class ThrottledApp(Retryable):
    """The pool is overloaded and the app has exceeded its limit of arrivals."""

    outcome = Outcome.THROTTLED_APP


class ThrottledTenant(Retryable):
    """The pool is overloaded and the tenant has exceeded its limit of arrivals."""

    outcome = Outcome.THROTTLED_TENANT


class ThrottledMemory(Retryable):
    """The pool is overloaded, and a new interaction's context does not fit into its memory beside those in progress."""

    outcome = Outcome.THROTTLED_MEMORY


class QueueFull(Retryable):
    """The queue is full: it holds the largest allowed number of requests."""

    outcome = Outcome.REJECTED_QUEUE_FULL


class ClientLimit(Retryable):
    """This client has the largest allowed number of requests in the system."""

    outcome = Outcome.REJECTED_CLIENT_LIMIT


class Unauthenticated(FairleadError):
    """The call carries no valid API key or secret."""

    outcome = Outcome.UNAUTHENTICATED


class PermissionDenied(FairleadError):
    """The API key is valid but does not permit this call."""

    outcome = Outcome.PERMISSION_DENIED


class Cancelled(FairleadError):
    """The caller cancelled the call or disconnected."""

    outcome = Outcome.CANCELLED


class Closed(Cancelled):
    """The client or the interaction is closed, so the call was not made or did not complete."""


class DeadlineExceeded(FairleadError):
    """The call did not complete before its deadline."""

    outcome = Outcome.DEADLINE_EXCEEDED


class Unavailable(Retryable):
    """No worker or service could accept the request."""

    outcome = Outcome.UNAVAILABLE

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message, retry_after)


class Internal(FairleadError):
    """The service failed, through a defect or a failed forward pass."""

    outcome = Outcome.INTERNAL


ERRORS: dict[Outcome, type[FairleadError]] = {
    error.outcome: error
    for error in (
        ThrottledUser,
        ThrottledApp,
        ThrottledTenant,
        ThrottledMemory,
        QueueFull,
        ClientLimit,
        TooLong,
        InvalidRequest,
        Unauthenticated,
        PermissionDenied,
        Cancelled,
        DeadlineExceeded,
        Unavailable,
        Internal,
    )
}


def error_for(outcome: Outcome, message: str, *, field: str = "", retry_after: float = 1.0) -> FairleadError:
    """Return an error of the class for `outcome`; arguments that the class does not take are ignored."""
    cls = ERRORS[outcome]
    if issubclass(cls, Retryable):
        return cls(message, retry_after)
    if issubclass(cls, InvalidRequest):
        error = cls(message)  # the message already names the field
        error.field = field or _field_in(message)
        return error
    return cls(message)


def _field_in(message: str) -> str:
    """Return the field that begins `message`: outputs that have begun, and older workers, name it there alone."""
    begun = _FIELD.match(message)
    return begun[0] if begun else ""


def listed(names: Sequence[str]) -> str:
    """Return `names` as text for a message; of a long list the first MOST_LISTED and the number of the others."""
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "") if names else "none"
