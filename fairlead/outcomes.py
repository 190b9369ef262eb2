"""The closed set of outcomes of a request; each request ends with exactly one of them.

Values equal those of `fairlead.v1.Outcome` and `fairlead.v1.FinishReason`, so no conversion is needed. Pure modules use
these enumerations and never import generated code.
"""

import enum


class _Named(enum.IntEnum):
    """An enumeration that is a number on the wire and is printed as its name."""

    def __str__(self) -> str:
        return self.name


class Outcome(_Named):
    """The way in which a request ended. There are few values, so it can be a metric label."""

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
    THROTTLED_TENANT = 14
    THROTTLED_MEMORY = 15


class FinishReason(_Named):
    """The reason why a completed generation stopped."""

    STOP = 1
    LENGTH = 2
