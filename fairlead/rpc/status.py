"""Conversion of errors to rich gRPC statuses (google.rpc.Status in the trailers) and back."""

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from fairlead.errors import FairleadError, InvalidRequest, Retryable, error_for
from fairlead.outcomes import Outcome

DOMAIN = "fairlead"
REQUEST_ID_METADATA = "x-request-id"
# Largest message of an error, in bytes. The metadata hold it three times, once with three bytes for each byte that is
# not ASCII. Metadata above 8 KiB may not arrive; the caller would then receive another error, for which it retries.
MAX_MESSAGE = 1000

CODES: dict[Outcome, grpc.StatusCode] = {
    Outcome.THROTTLED_USER: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Outcome.THROTTLED_APP: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Outcome.THROTTLED_TENANT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Outcome.THROTTLED_MEMORY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Outcome.REJECTED_QUEUE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Outcome.REJECTED_CLIENT_LIMIT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Outcome.REJECTED_TOO_LONG: grpc.StatusCode.INVALID_ARGUMENT,
    Outcome.REJECTED_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Outcome.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Outcome.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Outcome.CANCELLED: grpc.StatusCode.CANCELLED,
    Outcome.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    Outcome.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Outcome.INTERNAL: grpc.StatusCode.INTERNAL,
}
# Outcomes for statuses without our details, such as those of a proxy, of gRPC itself or of another version.
OUTCOMES: dict[grpc.StatusCode, Outcome] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: Outcome.REJECTED_QUEUE_FULL,
    grpc.StatusCode.INVALID_ARGUMENT: Outcome.REJECTED_INVALID,
    grpc.StatusCode.NOT_FOUND: Outcome.REJECTED_INVALID,
    grpc.StatusCode.UNAUTHENTICATED: Outcome.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED: Outcome.PERMISSION_DENIED,
    # The SDK handles its own cancellations elsewhere; from the peer this status means that a server or a proxy stops.
    grpc.StatusCode.CANCELLED: Outcome.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: Outcome.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE: Outcome.UNAVAILABLE,
}
# Parts of the messages of gRPC itself where the code alone would mislead: a repetition cannot help, or it can.
REASONS: dict[str, Outcome] = {
    "message larger than max": Outcome.REJECTED_TOO_LONG,
    "header with status: 413": Outcome.REJECTED_TOO_LONG,  # of a proxy
    "metadata size exceeds": Outcome.REJECTED_INVALID,
    "header with status: 431": Outcome.REJECTED_INVALID,
    "Method not found": Outcome.REJECTED_INVALID,  # of another service, or of another version
    "Stream removed": Outcome.UNAVAILABLE,
    "RST_STREAM": Outcome.UNAVAILABLE,
}


def _any(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def _clipped(message: str) -> str:
    data = message.encode()
    return message if len(data) <= MAX_MESSAGE else data[:MAX_MESSAGE].decode(errors="ignore") + "..."


def to_status(error: FairleadError, request_id: str = "") -> grpc.Status:
    """Convert `error` for `context.abort_with_status`, with ErrorInfo and, where they apply, RetryInfo and BadRequest.

    A message longer than MAX_MESSAGE bytes is cut. `request_id` goes into the trailing metadata.
    """
    message = _clipped(error.message)
    details = [_any(error_details_pb2.ErrorInfo(reason=error.outcome.name, domain=DOMAIN))]
    if isinstance(error, Retryable):
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(round(error.retry_after * 1e9))
        details.append(_any(error_details_pb2.RetryInfo(retry_delay=delay)))
    if isinstance(error, InvalidRequest) and error.field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=message)
        details.append(_any(error_details_pb2.BadRequest(field_violations=[violation])))
    code, _ = CODES[error.outcome].value
    status = rpc_status.to_status(status_pb2.Status(code=code, message=message, details=details))
    if not request_id:
        return status
    # abort_with_status replaces the trailing metadata that was set before.
    return status._replace(trailing_metadata=(*status.trailing_metadata, (REQUEST_ID_METADATA, request_id)))


def _outcome_of_grpc(call: grpc.RpcError) -> Outcome:
    if call.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Outcome.DEADLINE_EXCEEDED  # also where gRPC says that it removed the stream: time is over
    words = call.details() or ""
    named = (outcome for reason, outcome in REASONS.items() if reason in words)
    return next(named, OUTCOMES.get(call.code(), Outcome.INTERNAL))


def from_call(call: grpc.RpcError) -> FairleadError:
    """Return the error for a failed call; a status without our details is converted by gRPC's words or its code."""
    outcome = _outcome_of_grpc(call)
    message, field, retry_after = call.details() or call.code().name, "", 1.0
    status = rpc_status.from_call(call)
    for detail in status.details if status is not None else ():
        info, retry, bad = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info) and info.domain == DOMAIN and info.reason in Outcome.__members__:
            outcome = Outcome[info.reason]
        elif detail.Unpack(retry):
            retry_after = retry.retry_delay.ToNanoseconds() / 1e9
        elif detail.Unpack(bad) and bad.field_violations:
            field = bad.field_violations[0].field
    failure = error_for(outcome, message, field=field, retry_after=retry_after)
    failure.request_id = str(dict(call.trailing_metadata() or ()).get(REQUEST_ID_METADATA, ""))
    return failure
