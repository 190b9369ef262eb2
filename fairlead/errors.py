"""One error tree for both ends of the wire.

A service raises these; `fairlead.rpc.status` turns them into a gRPC status with rich details; the SDK turns the status
back into the same class. Each class fixes its outcome, so an error can never be counted as something else.
"""

from collections.abc import Sequence
from typing import ClassVar

from fairlead.outcomes import Outcome

MOST_LISTED = 10


class FairleadError(Exception):
    """A request that did not complete.

    `request_id` names it to whoever operates the gateway; empty when no request was made.
    """

    outcome: ClassVar[Outcome] = Outcome.INTERNAL

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.request_id = ""

    def __str__(self) -> str:
        return f"{self.message} (request {self.request_id})" if self.request_id else self.message


class InvalidRequest(FairleadError):
    """A field of the request is not acceptable; `field` is its path in the request message."""

    outcome = Outcome.REJECTED_INVALID

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class TooLong(InvalidRequest):
    """The request can never be served by this model: it exceeds the context or the KV capacity."""

    outcome = Outcome.REJECTED_TOO_LONG


class Retryable(FairleadError):
    """Refused for now; try again after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ThrottledUser(Retryable):
    """The pool is overloaded and the user is over its limit of arrivals."""

    outcome = Outcome.THROTTLED_USER


class ThrottledApp(Retryable):
    """The pool is overloaded and the app is over its limit of arrivals."""

    outcome = Outcome.THROTTLED_APP


class QueueFull(Retryable):
    """The queue holds as many requests as it may."""

    outcome = Outcome.REJECTED_QUEUE_FULL


class ClientLimit(Retryable):
    """This client has as many requests in the system as it may."""

    outcome = Outcome.REJECTED_CLIENT_LIMIT


class Unauthenticated(FairleadError):
    """No valid API key."""

    outcome = Outcome.UNAUTHENTICATED


class PermissionDenied(FairleadError):
    """The key is valid but may not do this."""

    outcome = Outcome.PERMISSION_DENIED


class Cancelled(FairleadError):
    """The caller went away or cancelled."""

    outcome = Outcome.CANCELLED


class Closed(Cancelled):
    """The client, or the interaction, that was to make the call is closed."""


class DeadlineExceeded(FairleadError):
    """The call's deadline passed."""

    outcome = Outcome.DEADLINE_EXCEEDED


class Unavailable(Retryable):
    """No worker or service could take the request."""

    outcome = Outcome.UNAVAILABLE

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message, retry_after)


class Internal(FairleadError):
    """A defect or a failed forward pass on our side."""

    outcome = Outcome.INTERNAL


ERRORS: dict[Outcome, type[FairleadError]] = {
    error.outcome: error
    for error in (
        ThrottledUser,
        ThrottledApp,
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
    """The error class that stands for `outcome`, built with what it takes."""
    cls = ERRORS[outcome]
    if issubclass(cls, Retryable):
        return cls(message, retry_after)
    if issubclass(cls, InvalidRequest):
        error = cls(message)  # the message already names the field
        error.field = field
        return error
    return cls(message)


def listed(names: Sequence[str]) -> str:
    """`names` as a message tells them: of a long list the first, and how many more."""
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "") if names else "none"
