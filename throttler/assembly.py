"""The throttler of a service as its options describe it, and the profiles that it follows."""

from collections.abc import Callable

from serving.config import ConfigError
from serving.document import text_of
from throttler.core.decider import Decider
from throttler.core.expectations import Expectations
from throttler.core.interactions import FinishedInteraction, Interactions
from throttler.core.leased_quota import LeasedQuota
from throttler.core.profiles import Profiles, RateLimits
from throttler.core.quota import LocalQuota
from throttler.core.registry import THROTTLES
from throttler.core.throttle import WINDOW_SECONDS
from throttler.core.windows import Window
from throttler.options import ThrottleOptions
from throttler.profiles_file import parse
from throttler.store import LocalStore, Store
from throttler.throttler import Throttler


def make_throttler(
    options: ThrottleOptions, profiles: Profiles, closed: Callable[[FinishedInteraction], None]
) -> tuple[Throttler, Store]:
    """Return the configured throttler and the store with which it shares limits; raise ConfigError."""
    throttle, expectations = THROTTLES[options.throttle], Expectations(profiles)
    if not options.redis:
        limits = throttle(profiles, LocalQuota(), WINDOW_SECONDS)
        store: Store = LocalStore()
    else:
        leases = LeasedQuota(WINDOW_SECONDS, options.gateways)
        limits = throttle(profiles, leases, WINDOW_SECONDS)
        store = _shared_store(options, leases, limits.window, expectations)
    return Throttler(Decider(limits, Interactions(options.secret, profiles), expectations), store, closed), store


def load_profiles(options: ThrottleOptions) -> Profiles:
    """Return the profiles of the file, with the configured limits as defaults; raise ConfigError."""
    limits = RateLimits(user_per_minute=options.user_per_minute, app_per_minute=options.app_per_minute)
    return parse(text_of(options.profiles), options.profiles, limits) if options.profiles else Profiles(limits=limits)


def _shared_store(options: ThrottleOptions, leases: LeasedQuota, window: Window, expectations: Expectations) -> Store:
    # A service without Redis starts faster without Redis' client.
    from serving.redis_access import open_redis
    from throttler.redis_store import RedisStore

    try:
        redis = open_redis(options.redis, options.redis_password, options.redis_ca)
    except (ValueError, OSError) as error:
        raise ConfigError(f"redis: {error}") from error
    return RedisStore(redis, leases, window, expectations, window_seconds=WINDOW_SECONDS)
