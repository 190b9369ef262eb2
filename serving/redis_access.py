"""The services' Redis client."""

from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

CONNECT_SECONDS = 0.25


def open_redis(url: str, password: str, ca: str) -> Redis:
    """Return a client for `url`: redis://, rediss:// (TLS, certificates checked against the file `ca`) or unix://.

    Raise ValueError if `url` is not such a URL. No connection is opened yet, and the client never retries a command.
    """
    options: dict[str, Any] = {"ssl_ca_certs": ca} if ca else {}
    if password:
        options["password"] = password
    no_retries: Retry = Retry(NoBackoff(), 0)
    return Redis.from_url(url, retry=no_retries, socket_connect_timeout=CONNECT_SECONDS, **options)
