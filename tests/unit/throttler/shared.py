"""Gateways that share limits, for the conformance suite: through a ledger in memory, or through Redis."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from redis.asyncio import Redis

from serving.cost import WeightedTokens
from serving.redis_access import open_redis
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budgets import Budgets
from throttler.core.decider import Arrival, Decider, Permit
from throttler.core.expectations import Expectations
from throttler.core.interaction_tokens import InteractionKey, TokenClaim, TokenSigner
from throttler.core.interactions import Interactions
from throttler.core.leased_quota import LeasedQuota
from throttler.core.oit import Oit
from throttler.core.pool_claims import PoolClaims
from throttler.core.profiles import Profiles
from throttler.core.quota_ledger import QuotaLedger
from throttler.core.throttle import Caller
from throttler.core.windows import Counts, QuotaAccount, QuotaDemand
from throttler.redis_store import RedisStore
from throttler.store import Store
from throttler.throttler import Throttler

SECRET = "the secret of gateways that share limits"
INTERACTIONS = itertools.count()
PATIENCE = 60.0  # seconds; most tests are about limits: a busy machine is not a Redis that is away


@dataclass
class Gateway:
    """One gateway's throttler and its store."""

    throttler: Throttler
    decider: Decider
    store: Store
    leases: LeasedQuota

    async def admits(
        self,
        client: str = "u",
        app: str = "a",
        *,
        tenant: str = "t",
        protected: bool = False,
        overloaded: bool = True,
    ) -> bool:
        """Whether a call is let in; `protected`: as one of an interaction that another gateway opened just now."""
        arrival = Arrival(Caller(tenant, client, app), overloaded=overloaded)
        if protected:
            key = InteractionKey(client, app, f"i{next(INTERACTIONS)}")
            arrival = arrival._replace(
                interaction=key.id, token=TokenSigner(SECRET).sign(key, TokenClaim(time.time(), 1))
            )
        permit = await self.permit(arrival)
        return permit is not None and (permit.protected or not protected)

    async def permit(self, arrival: Arrival) -> Permit | None:
        """What a call is given that ends at once; None: it is refused."""
        decision = await self.throttler.decide(arrival)
        if isinstance(decision, Permit):
            self.throttler.ended(decision)
        self.decider.check_invariants()
        self.leases.check_invariants()
        return decision if isinstance(decision, Permit) else None


def gateway(
    profiles: Profiles,
    throttle: Oit,
    expectations: Expectations,
    budgets: Budgets,
    store: Store,
    leases: LeasedQuota,
    clock: Callable[[], float],
) -> Gateway:
    """A gateway that decides by `throttle` and `budgets`."""
    decider = Decider(throttle, Interactions(SECRET, profiles), expectations, budgets)
    return Gateway(Throttler(decider, store, lambda _: None, clock), decider, store, leases)


class MemoryStore:
    """The ledger itself, in one process; gateways give back as soon as they are asked."""

    degraded = False

    def __init__(
        self, ledger: QuotaLedger, name: str, leases: LeasedQuota, counts: Counts, clock: Callable[[], float]
    ) -> None:
        self._ledger, self._name, self._leases, self._counts, self._clock = ledger, name, leases, counts, clock
        self.changed = asyncio.Event()
        self.peers: list[MemoryStore] = []

    @property
    def gateways(self) -> int:
        return self._leases.gateways

    async def lease(self, demand: QuotaDemand) -> None:
        account, amount = demand
        if self.ask(account, more=amount):
            for peer in self.peers:
                peer.recall(account)
            self.ask(account, more=amount)

    def ask(self, account: QuotaAccount, more: int) -> bool:
        now = self._clock()
        ask = self._leases.ask(account, self._counts.used(account.key, now), more, now)
        answer = self._ledger.ask(self._name, ask, self._leases.gateways, now)
        self._ledger.check_invariants()
        self._leases.answered(ask, answer, now, now)
        return answer.recalled

    def recall(self, account: QuotaAccount) -> None:
        now = self._clock()
        if self._leases.recalled(account, self._counts.used(account.key, now), now):
            self.report()

    def report(self) -> None:
        for account in self._leases.take_due():
            self.ask(account, more=0)

    async def run(self) -> None:
        raise NotImplementedError


def in_memory(count: int, profiles: Profiles, seconds: float, clock: Callable[[], float]) -> list[Gateway]:
    """Gateways on one ledger."""
    ledger, gateways, stores = QuotaLedger(seconds), list[Gateway](), list[MemoryStore]()
    for number in range(count):
        leases = LeasedQuota(seconds)
        throttle, budgets = Oit(profiles, leases, seconds), Budgets(profiles, BudgetAccounts(), WeightedTokens())
        counts = throttle.window
        stores.append(MemoryStore(ledger, f"g{number}", leases, counts, clock))
        gateways.append(gateway(profiles, throttle, Expectations(profiles), budgets, stores[-1], leases, clock))
        ledger.beat(f"g{number}", clock())
    for each, store in zip(gateways, stores, strict=True):
        store.peers = [peer for peer in stores if peer is not store]
        each.leases.set_gateways(ledger.beat(store._name, clock()), clock())
        each.leases.restore(clock())
    return gateways


@contextlib.asynccontextmanager
async def on_redis(
    url: str,
    count: int,
    profiles: Profiles,
    seconds: float,
    *,
    settle: float = 0.3,
    others: int = 0,
    answer_seconds: float = PATIENCE,
    links: Sequence[Redis] = (),
) -> AsyncIterator[list[Gateway]]:
    """Gateways on a real Redis, each with its own of `links`, once all know of each other and of `others`."""
    gateways, stores = list[Gateway](), list[RedisStore]()
    for link in links or [open_redis(url) for _ in range(count)]:
        leases, expectations = LeasedQuota(seconds), Expectations(profiles)
        throttle, budgets = Oit(profiles, leases, seconds), Budgets(profiles, BudgetAccounts(), WeightedTokens())
        store = RedisStore(
            link,
            leases,
            throttle.window,
            expectations,
            PoolClaims(),
            window_seconds=seconds,
            beat_seconds=0.05,
            settle_seconds=settle,
            answer_seconds=answer_seconds,
        )
        stores.append(store)
        gateways.append(gateway(profiles, throttle, expectations, budgets, store, leases, time.monotonic))
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(store.run()) for store in stores]
        try:
            await until(
                lambda: all(not s.degraded and s.gateways == count + others for s in stores), "all gateways are known"
            )
            yield gateways
        finally:
            for task in running:
                task.cancel()


async def until(condition: Callable[[], object], what: str) -> None:
    """Return once `condition` holds; fails after a generous deadline."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        await asyncio.sleep(0.005)
