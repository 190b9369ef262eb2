"""The throttler of a service: the decisions of `throttler.core.decider`, with this process's clock.

Any service can use it; the gateway does. The service passes a LocalStore or a RedisStore, which shares the limits.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from throttler.budget_leases import BudgetLeases
from throttler.core.budget import BudgetDemand, TokenUse
from throttler.core.budgets import Reservation
from throttler.core.decider import Arrival, Decider, Permit, ThrottleState
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.interactions import FinishedInteraction
from throttler.core.profiles import Expectation, Profiles
from throttler.core.throttle import Caller, Rejected
from throttler.core.windows import LimitStatus, QuotaDemand
from throttler.store import Store

EXPIRY_SECONDS = 5.0
Answer = TypeVar("Answer")


class Throttler:
    """The decisions about arriving calls, with this process's clock.

    `closed` is called with each closed interaction; `clock` returns seconds of a monotonic clock. `leases` are those of
    budgets that are shared.
    """

    def __init__(
        self,
        decider: Decider,
        store: Store,
        closed: Callable[[FinishedInteraction], None],
        clock: Callable[[], float] = time.monotonic,
        leases: BudgetLeases | None = None,
    ) -> None:
        self.decider = decider
        self.budgets = decider.budgets
        self._store = store
        self._closed = closed
        self._clock = clock
        self._leases = leases
        self._synchronize()

    def configure(self, profiles: Profiles) -> None:
        """Apply new profiles from now on; counts, interactions and learned expectations stay."""
        self.decider.configure(profiles)

    async def decide(self, arrival: Arrival) -> Permit | Rejected:
        """Decide about a call; wait for more of a limit only if the call would otherwise be refused."""
        return await self.answer(partial(self.decider.decide, arrival))

    async def answer(self, ask: Callable[[float], Answer | QuotaDemand | BudgetDemand]) -> Answer:
        """Return the answer of `ask`, which is called with the time, and again after a lease that it demands."""
        while isinstance(answer := ask(self._clock()), QuotaDemand | BudgetDemand):
            if isinstance(answer, QuotaDemand):
                await self._store.lease(answer)
            else:
                assert self._leases is not None, "a process that is alone has every budget to itself"
                await self._leases.lease(answer)
        return answer

    def settle_by(self, settle: Callable[[float], FinishedInteraction | None]) -> None:
        """Call `settle` with the time, and `closed` with the interaction that closes thereby."""
        self._tell(settle(self._clock()))

    def limit_status(self, caller: Caller) -> LimitStatus | None:
        """Return what is left of the caller's tightest limit now; see Decider."""
        return self.decider.limit_status(caller, self._clock())

    def token_status(self, caller: Caller) -> LimitStatus | None:
        """Return what is left of the caller's tightest limit in tokens now; see Decider."""
        return self.decider.token_status(caller, self._clock())

    def state(self) -> ThrottleState:
        """Return what an operator sees of limits and interactions; see Decider."""
        return self.decider.state(self._clock())

    def refused(self, client: str) -> None:
        """Count a call that was refused before `decide`; see Decider."""
        self.decider.refused(client, self._clock())

    def ended(self, permit: Permit, needed: Expectation | None = None) -> None:
        """Settle a permit whose call has ended; `needed` are the tokens of the call, or None if it did not complete."""
        self._tell(self.decider.ended(permit, needed, self._clock()))

    def withdrawn(self, permit: Permit) -> None:
        """Settle a permit whose call was refused later; see Decider."""
        self._tell(self.decider.withdrawn(permit, self._clock()))

    def settle(self, reservation: Reservation, used: TokenUse) -> None:
        """Replace what a call reserved of budgets by what it used; see Budgets."""
        self.budgets.settle(reservation, used, self._clock())

    def book(self, caller: Caller, used: TokenUse) -> None:
        """Book what a call used of budgets that has ended without a reservation."""
        self.budgets.reserve(caller, used, False, self._clock())

    def warnings(self, caller: Caller, interaction: InteractionKey | None) -> list[str]:
        """Return the budgets of which little is left; see Budgets."""
        return self.decider.warnings(caller, interaction, self._clock())

    def end_interaction(self, key: InteractionKey, token: bytes) -> None:
        """End an interaction on the caller's request; see Decider."""
        self._tell(self.decider.end_interaction(key, token, self._clock()))

    async def run(self) -> None:
        """Close expired interactions and run the store until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._store.run())
            tasks.create_task(self._expire())
            if self._leases is not None:
                tasks.create_task(self._leases.run())

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            self._synchronize()  # the wall clock may have been set meanwhile
            for closed in self.decider.expired(self._clock()):
                self._closed(closed)

    def _synchronize(self) -> None:
        self.decider.synchronize(time.time() - self._clock())

    def _tell(self, closed: FinishedInteraction | None) -> None:
        if closed is not None:
            self._closed(closed)
