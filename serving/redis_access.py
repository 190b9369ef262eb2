"""The services' Redis client: opening it, commands with a time limit, and the messages of a channel."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from serving.config import ConfigError

CONNECT_SECONDS = 0.25
T = TypeVar("T")


def open_redis(url: str) -> Redis:
    """Return a client for `url`, which has the form redis://:PASSWORD@host:port, rediss:// for TLS, or unix://.

    Certificates are checked against the file that the URL's query names as `ssl_ca_certs`, or the system's. Raise
    ConfigError if `url` is not such a URL. No connection is opened yet, and the client never retries a command.
    Only connecting has a time limit: the caller sets those of its commands.
    """
    no_retries: Retry = Retry(NoBackoff(), 0)
    # With a timeout of its own the library sends by asyncio.wait_for, which loses a cancellation in Python 3.11.
    try:
        return Redis.from_url(url, retry=no_retries, socket_timeout=None, socket_connect_timeout=CONNECT_SECONDS)
    except (ValueError, OSError) as error:
        raise ConfigError(f"redis: {error}") from error


async def drop_connections(redis: Redis) -> None:
    """Close all connections of `redis`, also those in use, so that the next command opens a new one.

    Users of Redis call this after each error. An address may have moved to another server, while the former one still
    answers on open connections: with READONLY after a demotion, LOADING, MASTERDOWN, or with nothing at all.
    """
    with suppress(RedisError, OSError):
        await redis.connection_pool.disconnect()


async def in_time(answer: Awaitable[T], seconds: float) -> T:
    """Return the result of `answer`; raise TimeoutError after `seconds`, pauses of this process excepted."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(answer)
    try:
        while True:
            started = loop.time()
            done, _ = await asyncio.wait([task], timeout=seconds)
            if done:
                return task.result()
            if loop.time() - started < 1.5 * seconds:
                raise TimeoutError(f"no answer within {seconds} s")
    finally:
        task.add_done_callback(_look_at)
        task.cancel()


async def follow_channel(
    redis: Redis, channel: str, receive: Callable[[bytes], None], *, beat_seconds: float, answer_seconds: float
) -> None:
    """Call `receive` with each message of `channel` until cancelled; `beat_seconds` after an error subscribe anew."""
    while True:
        try:
            async with redis.pubsub() as pubsub:
                await in_time(pubsub.subscribe(channel), answer_seconds)
                await _listen(pubsub, receive, max(beat_seconds, answer_seconds), answer_seconds)
        except (RedisError, OSError, TimeoutError):
            await asyncio.sleep(beat_seconds)


async def _listen(pubsub: PubSub, receive: Callable[[bytes], None], silence: float, answer_seconds: float) -> None:
    """Receive messages; raise TimeoutError when the connection is half-open: its server answers no ping."""
    is_pinged = False
    while True:
        message = await pubsub.get_message(timeout=silence)
        if message is not None:
            is_pinged = False
            if message["type"] == "message":
                receive(message["data"])
        elif is_pinged:
            raise TimeoutError("no answer to a ping")
        else:
            is_pinged = True
            await in_time(pubsub.ping(), answer_seconds)


def _look_at(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of an abandoned task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
