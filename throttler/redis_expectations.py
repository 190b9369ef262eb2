"""Exchange of learned expectations between gateways, through Redis, every few seconds."""

import asyncio
import json
import logging
import math
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from serving.redis_access import drop_connections
from throttler import lease_script as script
from throttler.core.expectations import CLIENTS, Expectations, ExpectationSubject, LearnedMedian

log = logging.getLogger(__name__)
EXCHANGE_SECONDS = 10.0
FORGET_SECONDS = 60  # lifetime of the medians of a gateway that has stopped
LEARNED = "{fairlead}:learned:"  # string: a gateway's view as JSON


async def exchange(redis: Redis, name: str, expectations: Expectations) -> None:
    """Publish the medians of the gateway `name` and read those of all others; raise RedisError."""
    view = [[*subject, *learned] for subject, learned in expectations.learned().items()]
    await redis.set(LEARNED + name, json.dumps(view), ex=FORGET_SECONDS)
    gateways: Any = await redis.zrange(script.GATEWAYS, 0, -1)  # the client library leaves the type open
    others = [LEARNED.encode() + gateway for gateway in gateways if gateway != name.encode()]
    views = await redis.mget(others) if others else []
    expectations.replace_remote(_view(view) for view in views if view is not None)


def _view(text: bytes | str) -> dict[ExpectationSubject, LearnedMedian]:
    """Parse the medians that another gateway published; return none if they are malformed or of another version."""
    try:
        view = {
            ExpectationSubject(tenant, app, stage): LearnedMedian(weight, clients)
            for tenant, app, stage, weight, clients in json.loads(text)
        }
        if not all(0 <= seen.weight < math.inf and 0 < seen.clients <= CLIENTS for seen in view.values()):
            raise ValueError("a figure is out of its range")
    except (TypeError, ValueError, RecursionError) as error:
        log.warning("a gateway's expectations cannot be read", extra={"error": repr(error)})
        return {}
    return view


async def exchange_for_ever(redis: Redis, name: str, expectations: Expectations) -> None:
    """Exchange expectations until cancelled; while Redis is unreachable, the last received medians stay in use."""
    while True:
        await asyncio.sleep(EXCHANGE_SECONDS)
        try:
            async with asyncio.timeout(EXCHANGE_SECONDS):
                await exchange(redis, name, expectations)
        except (RedisError, OSError, TimeoutError) as error:
            log.warning("expectations are not exchanged", extra={"error": repr(error)})
            await drop_connections(redis)
