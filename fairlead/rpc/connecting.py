"""Error messages for calls that never reached a server."""

import grpc

from fairlead.errors import Unavailable

_NEVER_CONNECTED = ("failed to connect to all addresses", "errors resolving ")  # how gRPC's message begins
# Reasons by a part of gRPC's message; the first part that the message contains decides.
_REASONS = {
    "Connection refused": "connection refused; is `fairlead up` running?",
    "WRONG_VERSION_NUMBER": "speaks no TLS; without https:// before the address it is called in plain text",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted; GRPC_DEFAULT_SSL_ROOTS_FILE_PATH may name a file of "
    "authorities that are",
    "Socket closed": "closed the connection at once; if it speaks TLS, write https:// before the address",
    "Failed parsing HTTP/2": "answers, but is no gRPC server",
    "timed out": "no answer in time",
    "errors resolving ": "there is no host of this name",
}


def unreachable(call: grpc.RpcError, address: str) -> Unavailable | None:
    """Return the error of a failed call that never reached `address`, or None if it may have reached it."""
    details = call.details() or ""
    if call.code() is not grpc.StatusCode.UNAVAILABLE or not details.startswith(_NEVER_CONNECTED):
        return None
    reason = next((said for sign, said in _REASONS.items() if sign in details), details)
    return Unavailable(f"{address}: {reason}")
