"""Gateways that share limits, for the conformance suite: through a ledger in memory, or through Redis."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from redis.asyncio import Redis

from serving.redis_access import open_redis
from throttler.core.leased_quota import LeasedQuota
from throttler.core.oit import Oit
from throttler.core.profiles import Profiles
from throttler.core.quota import QuotaAccount
from throttler.core.quota_ledger import QuotaLedger
from throttler.core.throttle import Admitted, Caller
from throttler.redis_store import RedisStore
from throttler.store import Store, decide

PATIENCE = 60.0  # seconds; most tests are about limits: a busy machine is not a Redis that is away


@dataclass
class Gateway:
    """One gateway's throttle and its store."""

    throttle: Oit
    store: Store
    leases: LeasedQuota
    clock: Callable[[], float]

    async def admits(
        self,
        client: str = "u",
        app: str = "a",
        *,
        tenant: str = "t",
        protected: bool = False,
        overloaded: bool = True,
    ) -> bool:
        caller = Caller(tenant, client, app)
        decision = await decide(
            self.throttle, self.store, self.clock, caller=caller, protected=protected, overloaded=overloaded
        )
        self.throttle.check_invariants()
        self.leases.check_invariants()
        return isinstance(decision, Admitted) and (decision.protected or not protected)


class MemoryStore:
    """The ledger itself, in one process; gateways give back as soon as they are asked."""

    degraded = False

    def __init__(
        self, ledger: QuotaLedger, name: str, leases: LeasedQuota, throttle: Oit, clock: Callable[[], float]
    ) -> None:
        self._ledger, self._name, self._leases, self._throttle, self._clock = ledger, name, leases, throttle, clock
        self.changed = asyncio.Event()
        self.peers: list[MemoryStore] = []

    @property
    def gateways(self) -> int:
        return self._leases.gateways

    async def lease(self, account: QuotaAccount) -> None:
        if self.ask(account, more=1):
            for peer in self.peers:
                peer.recall(account)
            self.ask(account, more=1)

    def ask(self, account: QuotaAccount, more: int) -> bool:
        now = self._clock()
        ask = self._leases.ask(account, self._throttle.window.used(account.key, now), more, now)
        answer = self._ledger.ask(self._name, ask, self._leases.gateways, now)
        self._ledger.check_invariants()
        self._leases.answered(ask, answer, now, now)
        return answer.recalled

    def recall(self, account: QuotaAccount) -> None:
        now = self._clock()
        if self._leases.recalled(account, self._throttle.window.used(account.key, now), now):
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
        throttle = Oit(profiles, leases, seconds)
        stores.append(MemoryStore(ledger, f"g{number}", leases, throttle, clock))
        gateways.append(Gateway(throttle, stores[-1], leases, clock))
        ledger.beat(f"g{number}", clock())
    for gateway, store in zip(gateways, stores, strict=True):
        store.peers = [peer for peer in stores if peer is not store]
        gateway.leases.heard(ledger.beat(store._name, clock()), clock())
        gateway.leases.restore(clock())
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
) -> AsyncIterator[list[Gateway]]:
    """Gateways on a real Redis, each with its own connections, once all know of each other and of `others`."""
    gateways, links, stores = list[Gateway](), list[Redis](), list[RedisStore]()
    for _ in range(count):
        leases, link = LeasedQuota(seconds), open_redis(url, "", "")
        throttle = Oit(profiles, leases, seconds)
        store = RedisStore(
            link,
            leases,
            throttle.window,
            window_seconds=seconds,
            beat_seconds=0.05,
            settle_seconds=settle,
            answer_seconds=answer_seconds,
        )
        stores.append(store)
        links.append(link)
        gateways.append(Gateway(throttle, store, leases, time.monotonic))
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
            for link in links:
                await link.aclose()


async def until(condition: Callable[[], object], what: str) -> None:
    """Return once `condition` holds; fails after a generous deadline."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        await asyncio.sleep(0.005)
