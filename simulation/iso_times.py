"""Times of day as other programs write them."""

from datetime import UTC, datetime


def seconds_since_1970(text: str) -> float:
    """Return an ISO 8601 time, in UTC if it names no zone, in seconds since 1970; raises ValueError for other texts."""
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
