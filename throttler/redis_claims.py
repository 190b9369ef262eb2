"""Exchange of claims on the pools' memory between gateways, through Redis, once a second."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from serving.redis_access import drop_connections, in_time
from throttler import lease_script as script
from throttler.core.pool_claims import EXCHANGE_SECONDS, PoolClaims
from throttler.core.working_sets import ClaimsView

log = logging.getLogger(__name__)
FORGET_SECONDS = 5  # lifetime of the claims of a gateway that has stopped
CLAIMS = "{fairlead}:claims:"  # string: a gateway's claims as JSON

_decoder = msgspec.json.Decoder(dict[str, ClaimsView])


async def exchange(redis: Redis, name: str, claims: PoolClaims) -> None:
    """Publish the claims at the gateway `name` and read those of all others; raise RedisError."""
    view = claims.view(time.monotonic())
    await redis.set(CLAIMS + name, msgspec.json.encode(view), ex=FORGET_SECONDS)
    gateways: Any = await redis.zrange(script.GATEWAYS, 0, -1)  # the client library leaves the type open
    others = [CLAIMS.encode() + gateway for gateway in gateways if gateway != name.encode()]
    views = await redis.mget(others) if others else []
    claims.replace_remote([_view(view) for view in views if view is not None], time.monotonic())


def _view(text: bytes | str) -> Mapping[str, ClaimsView]:
    """Parse the claims that another gateway published; return none if they are malformed or of another version."""
    try:
        views = _decoder.decode(text)
        for view in views.values():
            if not all(claim.tokens > 0 and claim.weight > 0 for claim in view.claims) or not all(
                weight > 0 for _, weight in view.waiting
            ):
                raise ValueError("a figure is not above 0")
    except (ValueError, RecursionError) as error:
        log.warning("a gateway's claims cannot be read", extra={"error": repr(error)})
        return {}
    return views


async def exchange_for_ever(redis: Redis, name: str, claims: PoolClaims) -> None:
    """Exchange claims until cancelled; while Redis is unreachable, this gateway counts its own alone."""
    is_away = False
    while True:
        await asyncio.sleep(EXCHANGE_SECONDS)
        try:
            await in_time(exchange(redis, name, claims), FORGET_SECONDS)
            is_away = False
        except (RedisError, OSError, TimeoutError) as error:
            if not is_away:
                log.warning("claims are not exchanged", extra={"error": repr(error)})
            is_away = True
            claims.replace_remote([], time.monotonic())
            await drop_connections(redis)
