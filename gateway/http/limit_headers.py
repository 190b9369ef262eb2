"""The headers by which clients of OpenAI's API see how close they are to their limit."""

from gateway.http.asgi import Headers
from throttler.core.decider import LimitStatus


def limit_headers(status: LimitStatus | None) -> Headers:
    """Return the limit in calls, what remains of it, and the seconds until all of it does; none without a limit."""
    if status is None:
        return []
    return [
        (b"x-ratelimit-limit-requests", b"%d" % status.limit),
        (b"x-ratelimit-remaining-requests", b"%d" % status.remaining),
        (b"x-ratelimit-reset-requests", b"%.3fs" % status.reset),
    ]
