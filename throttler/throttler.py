"""What a service asks about each call that arrives: the decisions of `throttler.core.decider`, by this process's clock.

Any service can be the caller; the gateway is one. It hands in where limits are shared, a LocalStore or a RedisStore.
"""

import asyncio
import time
from collections.abc import Callable

from throttler.core.decider import Arrival, Decider, LimitStatus, Permit
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.interactions import FinishedInteraction
from throttler.core.profiles import Expectation, Profiles
from throttler.core.quota import QuotaAccount
from throttler.core.throttle import Rejected
from throttler.store import Store

EXPIRY_SECONDS = 5.0


class Throttler:
    """Decides about calls; `closed` is told of each interaction that is over. `clock`: seconds, never going back."""

    def __init__(
        self,
        decider: Decider,
        store: Store,
        closed: Callable[[FinishedInteraction], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._decider = decider
        self._store = store
        self._closed = closed
        self._clock = clock
        self._synchronize()

    def configure(self, profiles: Profiles) -> None:
        """Apply other profiles from now on; counts, interactions and what was learned stay."""
        self._decider.configure(profiles)

    async def decide(self, arrival: Arrival) -> Permit | Rejected:
        """Decide about a call; wait for more of a limit only where the call would otherwise be refused."""
        while isinstance(decision := self._decider.decide(arrival, self._clock()), QuotaAccount):
            await self._store.lease(decision)
        return decision

    def limit_status(self, client: str) -> LimitStatus | None:
        """Return how much of its limit a client has now; see Decider."""
        return self._decider.limit_status(client, self._clock())

    def refused(self, client: str) -> None:
        """Count a call that was refused before it was decided about; see Decider."""
        self._decider.refused(client, self._clock())

    def ended(self, permit: Permit, needed: Expectation | None = None) -> None:
        """Settle a permit whose call has ended; `needed`: the tokens of the call, where it completed."""
        self._tell(self._decider.ended(permit, needed, self._clock()))

    def withdrawn(self, permit: Permit) -> None:
        """Settle a permit whose call was refused after all; see Decider."""
        self._tell(self._decider.withdrawn(permit, self._clock()))

    def end_interaction(self, key: InteractionKey, token: bytes) -> None:
        """Take the caller's word that an interaction is over."""
        self._tell(self._decider.end_interaction(key, token, self._clock()))

    async def run(self) -> None:
        """Close the interactions whose time is over, and keep in touch with the other gateways, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._store.run())
            tasks.create_task(self._expire())

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            self._synchronize()  # the wall clock may have been set since
            for closed in self._decider.expired(self._clock()):
                self._closed(closed)

    def _synchronize(self) -> None:
        self._decider.synchronize(time.time() - self._clock())

    def _tell(self, closed: FinishedInteraction | None) -> None:
        if closed is not None:
            self._closed(closed)
