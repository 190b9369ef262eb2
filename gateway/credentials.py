"""What a caller shows of itself with a call, whatever protocol it speaks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """As the caller gave them, nothing checked; empty where it gave none."""

    authorization: str = ""  # "Bearer <API key>"
    user: str = ""  # whom the key names
    traceparent: str = ""  # the caller's span (W3C Trace Context)
    request_id: str = ""  # the caller's own name for the call
