"""The interface through which a gateway requests more of a shared limit."""

import asyncio
from typing import Protocol

from serving.rpc.server import Server
from throttler.core.windows import QuotaDemand

SHARING = "shared-limits"  # the health service answers by this name whether limits are shared as configured


class Store(Protocol):
    """The place where gateways share limits. `changed` is set whenever `degraded` changes."""

    changed: asyncio.Event

    @property
    def degraded(self) -> bool:
        """Whether this gateway now counts by itself, because the shared state is unreachable."""

    @property
    def gateways(self) -> int:
        """The number of gateways that share the limits."""

    async def lease(self, demand: QuotaDemand) -> None:
        """Request what `demand` lacks; return after any answer, or at once while degraded."""

    async def run(self) -> None:
        """Exchange counts with the shared state until cancelled, then disconnect."""


class LocalStore:
    """The store of a single gateway, which has every limit to itself (`LocalQuota`). See Store."""

    degraded = False
    gateways = 1

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    async def lease(self, demand: QuotaDemand) -> None:
        """See Store."""

    async def run(self) -> None:
        """See Store."""


async def report_sharing(store: Store, server: Server) -> None:
    """Report under the health service's name SHARING whether limits are shared as configured, until cancelled."""
    while True:
        await server.set_health(SHARING, not store.degraded)
        await store.changed.wait()
        store.changed.clear()
