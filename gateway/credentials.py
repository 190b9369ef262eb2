"""The credentials of a caller, independent of the protocol."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The unchecked credentials and ids that a caller sends with a call; a field that it does not send is empty."""

    authorization: str = ""  # "Bearer <API key>"
    user: str = ""  # the user for whom the call is made
    traceparent: str = ""  # the caller's span (W3C Trace Context)
    request_id: str = ""  # the caller's id of the call
