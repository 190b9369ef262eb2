"""Where a gateway asks for more of a limit."""

import asyncio
from typing import Protocol

from throttler.core.quota import QuotaAccount


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
        """Keep in touch with the others until cancelled, then let go of them."""


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
