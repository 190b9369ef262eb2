"""The throttler of a service as its options describe it, and the profiles that it follows."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from serving.config import cost_function
from serving.document import text_of
from throttler.core.decider import Decider
from throttler.core.expectations import Expectations
from throttler.core.interactions import FinishedInteraction, Interactions
from throttler.core.leased_quota import LeasedQuota
from throttler.core.profiles import Profiles, RateLimits
from throttler.core.quota import LocalQuota
from throttler.core.throttle import WINDOW_SECONDS
from throttler.core.throttles import THROTTLES
from throttler.core.token_limits import TokenLimits
from throttler.core.windows import AllCounts
from throttler.options import ThrottleChoice, ThrottleOptions
from throttler.profiles_file import parse
from throttler.store import LocalStore, Store
from throttler.throttler import Throttler

if TYPE_CHECKING:
    from redis.asyncio import Redis


def make_throttler(
    options: ThrottleOptions,
    profiles: Profiles,
    closed: Callable[[FinishedInteraction], None],
    redis: "Redis | None",
) -> tuple[Throttler, Store]:
    """Return the configured throttler and the store with which it shares limits, in `redis` if there is one.

    Raise ConfigError.
    """
    leases = LeasedQuota(WINDOW_SECONDS, options.gateways) if redis is not None else None
    quota = leases or LocalQuota()
    throttle = THROTTLES[ThrottleChoice.parse(options.throttle).name](profiles, quota, WINDOW_SECONDS)
    token_limits = TokenLimits(profiles, quota, cost_function(options.cost))
    expectations = Expectations(profiles)
    store: Store = LocalStore()
    if redis is not None and leases is not None:
        # A service without Redis starts faster without Redis' client.
        from throttler.redis_store import RedisStore

        counts = AllCounts(throttle.window, token_limits.window)
        store = RedisStore(redis, leases, counts, expectations, window_seconds=WINDOW_SECONDS)
    interactions = Interactions(options.secret, profiles, options.accepted_secret)
    decider = Decider(throttle, interactions, expectations, token_limits)
    return Throttler(decider, store, closed), store


def load_profiles(options: ThrottleOptions) -> Profiles:
    """Return the profiles of the file, with the configured limits as defaults; raise ConfigError."""
    choice = ThrottleChoice.parse(options.throttle)
    limits = RateLimits(user_per_minute=choice.user_per_minute, app_per_minute=choice.app_per_minute)
    return parse(text_of(options.profiles), options.profiles, limits) if options.profiles else Profiles(limits=limits)


def shared_redis(options: ThrottleOptions) -> "Redis | None":
    """Return a client of the Redis in which services share limits, if there is one; raise ConfigError."""
    if not options.redis:
        return None
    from serving.redis_access import open_redis

    return open_redis(options.redis)
