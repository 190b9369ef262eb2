"""What a gateway asks for more of a limit, and how a decision waits for it."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from throttler.core.quota import QuotaAccount
from throttler.core.throttle import Caller, Decision, Throttle


class Store(Protocol):
    """Where limits are shared. `changed` is set whenever `degraded` changes."""

    changed: asyncio.Event

    @property
    def degraded(self) -> bool:
        """Whether this gateway counts by itself now, since the others cannot be reached."""

    @property
    def gateways(self) -> int:
        """How many gateways share the limits."""

    async def lease(self, account: QuotaAccount) -> None:
        """Return when more of `account` has been asked for, whatever the answer, or cannot be asked for."""

    async def run(self) -> None:
        """Keep in touch with the others, until cancelled."""


class LocalStore:
    """The only gateway: it has every limit to itself (`throttler.core.quota.Whole`) and nobody to ask."""

    degraded = False
    gateways = 1

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    async def lease(self, account: QuotaAccount) -> None:
        """See Store."""

    async def run(self) -> None:
        """See Store."""


async def decide(
    throttle: Throttle,
    store: Store,
    clock: Callable[[], float],
    *,
    caller: Caller,
    protected: bool,
    overloaded: bool,
) -> Decision:
    """Throttle.admit, after asking for what the gateway lacks to admit the call; each asking is answered at once."""
    while (account := throttle.lacks(caller, protected, overloaded, clock())) is not None:
        await store.lease(account)
    return throttle.admit(caller, protected, overloaded, clock())
