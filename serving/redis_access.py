"""The services' Redis client."""

from contextlib import suppress
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

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


async def drop_connections(redis: Redis) -> None:
    """Close all connections of `redis`, also those in use, so that the next command opens a new one.

    Users of Redis call this after each error. An address may have moved to another server, while the former one still
    answers on open connections: with READONLY after a demotion, LOADING, MASTERDOWN, or with nothing at all.
    """
    with suppress(RedisError, OSError):
        await redis.connection_pool.disconnect()
