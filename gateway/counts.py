"""Limits on how much a request holds, which are checked before anything is made of it."""

from fairlead.errors import InvalidRequest

MAX_MESSAGES = 10_000  # messages of a chat; a request would have room for millions of empty ones
MAX_TOOLS = 128
MAX_TOOL_CALLS = 10_000  # of all messages of a chat


def check_count(count: int, most: int, what: str, field: str) -> None:
    """Raise InvalidRequest, which names `field`, for more than `most` of `what`."""
    if count > most:
        raise InvalidRequest(f"must hold at most {most} {what}, got {count}", field)
