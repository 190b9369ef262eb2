"""The closed vocabulary of how a request ends (design: one outcome per request, never log-and-drop).

Values equal those of `fairlead.v1.Outcome` and `fairlead.v1.FinishReason`, so that no translation table exists;
pure modules use these and never import generated code.
"""

import enum


class _Named(enum.IntEnum):
    """A number on the wire, a name wherever it is printed."""

    def __str__(self) -> str:
        return self.name


class Outcome(_Named):
    """Exactly one per request; low-cardinality, fit for a metric label."""

    COMPLETED = 1
    THROTTLED_USER = 2
    THROTTLED_APP = 3
    REJECTED_QUEUE_FULL = 4
    REJECTED_CLIENT_LIMIT = 5
    REJECTED_TOO_LONG = 6
    REJECTED_INVALID = 7
    UNAUTHENTICATED = 8
    PERMISSION_DENIED = 9
    CANCELLED = 10
    DEADLINE_EXCEEDED = 11
    UNAVAILABLE = 12
    INTERNAL = 13


class FinishReason(_Named):
    """Why a completed generation stopped."""

    STOP = 1
    LENGTH = 2
