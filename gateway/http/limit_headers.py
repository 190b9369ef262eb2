"""The headers by which clients of OpenAI's API see how close they are to their limit."""

from gateway.http.asgi import Headers
from throttler.core.throttle import LimitStatus


def limit_headers(unit: bytes, status: LimitStatus | None) -> Headers:
    """Return the limit in `unit` (requests or tokens), what remains of it, and the seconds until all of it does.

    There are no headers without a limit.
    """
    if status is None:
        return []
    return [
        (b"x-ratelimit-limit-" + unit, b"%d" % status.limit),
        (b"x-ratelimit-remaining-" + unit, b"%d" % status.remaining),
        (b"x-ratelimit-reset-" + unit, b"%.3fs" % status.reset),
    ]
