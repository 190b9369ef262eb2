"""The throttler of a service as its options describe it, and the profiles that it follows."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from serving.config import ConfigError, cost_function
from serving.document import text_of
from throttler.budget_leases import BudgetLeases, Ledger
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budgets import Budgets
from throttler.core.decider import Decider
from throttler.core.expectations import Expectations
from throttler.core.interactions import FinishedInteraction, Interactions
from throttler.core.leased_quota import LeasedQuota
from throttler.core.pool_claims import PoolClaims
from throttler.core.profiles import Profiles, RateLimits
from throttler.core.throttle import WINDOW_SECONDS
from throttler.core.throttles import THROTTLES
from throttler.core.windows import LocalQuota
from throttler.file_ledger import FileLedger
from throttler.options import ThrottleChoice, ThrottleOptions
from throttler.profiles_file import parse
from throttler.store import LocalStore, Store
from throttler.throttler import Throttler

GATEWAYS = 4  # that are assumed to share the limits until Redis reports their number

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
    leases = LeasedQuota(WINDOW_SECONDS, GATEWAYS) if redis is not None else None
    quota = leases or LocalQuota()
    throttle = THROTTLES[ThrottleChoice.parse(options.throttle).name](profiles, quota, WINDOW_SECONDS)
    ledger = _ledger(options)
    accounts = BudgetAccounts(is_shared=ledger is not None)
    budgets = Budgets(profiles, accounts, cost_function(options.cost))
    expectations, claims = Expectations(profiles), PoolClaims()
    store: Store = LocalStore()
    if redis is not None and leases is not None:
        # A service without Redis starts faster without Redis' client.
        from throttler.redis_store import RedisStore

        store = RedisStore(redis, leases, throttle.window, expectations, claims, window_seconds=WINDOW_SECONDS)
    interactions = Interactions(options.secret, profiles, options.accepted_secret)
    decider = Decider(throttle, interactions, expectations, budgets, claims)
    budget_leases = BudgetLeases(accounts, ledger) if ledger is not None else None
    return Throttler(decider, store, closed, leases=budget_leases), store


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


def _ledger(options: ThrottleOptions) -> Ledger | None:
    """Return the ledger of budgets: Redis, or else the file; None for a process that is alone and forgets."""
    if (redis := shared_redis(options)) is not None:
        from throttler.redis_ledger import RedisLedger

        return RedisLedger(redis)
    try:
        return FileLedger(Path(options.ledger)) if options.ledger else None
    except sqlite3.Error as error:
        raise ConfigError(f"ledger: {options.ledger}: {error}") from error
