"""The services' Redis client."""

from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

CONNECT_SECONDS = 0.25


def open_redis(url: str, password: str, ca: str) -> Redis:
    """Return a client for `url`: redis://, rediss:// (TLS, certificates checked against the file `ca`) or unix://.

    Raise ValueError if `url` is not such a URL. No connection is opened yet, and the client never retries a command.
    Only connecting has a time limit: the caller sets those of its commands.
    """
    options: dict[str, Any] = {"ssl_ca_certs": ca} if ca else {}
    if password:
        options["password"] = password
    no_retries: Retry = Retry(NoBackoff(), 0)
    # With a timeout of its own the library sends by asyncio.wait_for, which loses a cancellation in Python 3.11.
    return Redis.from_url(url, retry=no_retries, socket_timeout=None, socket_connect_timeout=CONNECT_SECONDS, **options)
