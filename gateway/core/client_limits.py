"""Limits on what clients hold at a gateway: open calls, and bytes of prompts that wait or of outputs that are unread.

Both give way to no flood by a dynamic threshold (Choudhury and Hahne 1998): a client may hold no more than is free, nor
than its tenant may still take, and a tenant OF_FREE times what is free. k tenants that take all they can leave
1 / (4 k + 1) of the whole free, however many users they name, and k users of a tenant leave 1 / (k + 1) of its part: no
client is locked out by others. Background calls count as those of a tenant of their own, for which half of the whole is
never free.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

from fairlead.errors import ClientLimit, QueueFull, error_for
from serving.names import tenant_of
from throttler.core.budget import BudgetDemand, TokenUse
from throttler.core.decider import Arrival, Decider, Permit
from throttler.core.interactions import FinishedInteraction
from throttler.core.profiles import Expectation
from throttler.core.throttle import Rejected
from throttler.core.windows import QuotaDemand
from throttler.core.working_sets import Context

RETRY_SECONDS = 1.0
RESERVED = 1 / 8  # part of all open calls that only protected calls may take
KEPT_FROM_BACKGROUND = 1 / 2  # part of a whole that background calls may not take
BACKGROUND = "(background)"
OF_FREE = 4  # a tenant may hold this many times as much as is free


def counted_as(client: str, *, background: bool) -> str:
    """Return the name under which calls of `client` count."""
    return f"{BACKGROUND}/{client}" if background else client


class DynamicThreshold:
    """The amounts that clients hold of a whole; see the module."""

    def __init__(self, whole: int) -> None:
        self.whole = whole
        self.held = 0
        self._of_client: Counter[str] = Counter()
        self._of_tenant: Counter[str] = Counter()

    def of_client(self, client: str) -> int:
        """Return what a client holds."""
        return self._of_client[client]

    def of_tenant(self, client: str) -> int:
        """Return what the client's tenant holds, with all of its users."""
        return self._of_tenant[tenant_of(client)]

    def take(self, client: str, amount: int, reserve: int = 0) -> bool:
        """Count an amount above 0; return False if the client may take none, while `reserve` counts as taken.

        The last amount of each client may exceed the threshold.
        """
        tenant = tenant_of(client)
        if tenant == BACKGROUND:
            reserve = round(KEPT_FROM_BACKGROUND * self.whole)
        free = self.whole - self.held - reserve
        if self._of_client[client] >= min(free, OF_FREE * free - self._of_tenant[tenant]):
            return False
        self._of_client[client] += amount
        self._of_tenant[tenant] += amount
        self.held += amount
        return True

    def remove(self, client: str, amount: int) -> None:
        """Count an amount no longer that the client took."""
        self.held -= amount
        for counter, name in ((self._of_client, client), (self._of_tenant, tenant_of(client))):
            counter[name] -= amount
            if not counter[name]:
                del counter[name]

    def check_invariants(self) -> None:
        """Raise AssertionError unless the counts agree and no client is kept that holds nothing."""
        assert self.held == self._of_client.total(), f"{self.held} held, by clients {self._of_client.total()}"
        assert all(amount > 0 for amount in self._of_client.values()), f"clients with nothing: {self._of_client}"
        tenants: Counter[str] = Counter()
        for client, amount in self._of_client.items():
            tenants[tenant_of(client)] += amount
        assert self._of_tenant == tenants, f"tenants hold {tenants}, counted {self._of_tenant}"


class OpenCallLimiter:
    """The number of open calls, limited per client, and by a dynamic threshold over all clients.

    Protected calls may also take the reserve and have no limit per client, because the throttle caps their number.
    """

    def __init__(self, *, per_client: int, total: int) -> None:
        self._per_client = per_client
        self._open = DynamicThreshold(total)
        self._reserve = round(RESERVED * total)

    @property
    def count(self) -> int:
        return self._open.held

    def open(self, client: str, protected: bool) -> None:
        """Count a call in, `protected` by an interaction in progress or not; raises ClientLimit or QueueFull."""
        held = self._open.of_client(client)
        if not protected and held >= self._per_client:
            limit = f"max_streams_per_client={self._per_client}"
            raise ClientLimit(f"client {client!r} has {held} calls open; {limit}", RETRY_SECONDS)
        if not self._open.take(client, 1, 0 if protected else self._reserve):
            message = (
                f"the gateway has {self._open.held} calls open, {self._open.of_tenant(client)} of them of tenant "
                f"{tenant_of(client)!r}, {held} of client {client!r}"
            )
            raise QueueFull(f"{message}; max_streams={self._open.whole}", RETRY_SECONDS)

    def close(self, client: str) -> None:
        """Release one open call of `client`."""
        self._open.remove(client, 1)

    def check_invariants(self) -> None:
        self._open.check_invariants()


class HeldBytesLimiter(DynamicThreshold):
    """The bytes that are held for all clients; `what` completes "bytes of" in the message of an error."""

    def __init__(self, total: int, what: str) -> None:
        super().__init__(total)
        self._what = what

    def add(self, client: str, size: int) -> None:
        """Count `size` bytes more, above 0; raise ClientLimit if the client may not hold more now."""
        if not self.take(client, size):
            message = (
                f"{self.held} bytes of {self._what}, {self.of_tenant(client)} of them of tenant "
                f"{tenant_of(client)!r}, {self.of_client(client)} of this client"
            )
            raise ClientLimit(f"{message}; at most {self.whole}", RETRY_SECONDS)


Call = TypeVar("Call", bound=Hashable)


class CallAdmission(Generic[Call]):
    """What admitted calls hold: a permit of the throttler, which decides first, and a place among the open calls.

    A call with a permit is settled once, by `ended` or `withdrawn`; both do nothing for a call without one.
    """

    def __init__(self, decider: Decider, open_calls: OpenCallLimiter) -> None:
        self._decider = decider
        self._open_calls = open_calls
        self._permits: dict[Call, Permit] = {}
        # The names under which calls count; not of those that only the limit on open calls refused.
        self._open: dict[Call, str] = {}

    def admit(self, call: Call, arrival: Arrival, now: float) -> Permit | QuotaDemand | BudgetDemand:
        """Admit a call; raise the FairleadError that refuses it.

        A demand as the result is what the caller has to request of the other gateways before it asks again. A call
        that has too many others open keeps its permit until it is withdrawn.
        """
        decision = self._decider.decide(arrival, now)
        if isinstance(decision, QuotaDemand | BudgetDemand):
            return decision
        if isinstance(decision, Rejected):
            raise error_for(decision.outcome, decision.message, retry_after=decision.retry_after)
        self._permits[call] = decision
        name = counted_as(arrival.caller.client, background=arrival.background)
        self._open_calls.open(name, decision.protected)
        self._open[call] = name
        return decision

    @property
    def count(self) -> int:
        """The number of admitted calls that are open; others may count towards the same limit."""
        return len(self._open)

    def permit(self, call: Call) -> Permit | None:
        """Return the permit that a call holds, if it holds one."""
        return self._permits.get(call)

    def ended(
        self, call: Call, used: TokenUse, needed: Expectation | None, now: float, context: Context | None = None
    ) -> FinishedInteraction | None:
        """Settle a call that was ready for a worker and has ended; return the interaction that closes with it.

        `needed` are the tokens of the call, and `context` is what it leaves; None if it did not complete.
        """
        permit = self._release(call)
        if permit is None:
            return None
        self._decider.budgets.settle(permit.reservation, used, now)
        return self._decider.ended(permit, needed, now, context)

    def withdrawn(self, call: Call, now: float) -> FinishedInteraction | None:
        """Settle a call that ended before it was ready; it opens and ends no interaction. See Decider."""
        permit = self._release(call)
        return None if permit is None else self._decider.withdrawn(permit, now)

    def check_invariants(self) -> None:
        """Raise AssertionError when a limit, or what a call holds of it, is impossible."""
        self._decider.check_invariants()
        self._open_calls.check_invariants()
        assert self._open.keys() <= self._permits.keys(), "a call is open and has no permit"
        assert len(self._open) <= self._open_calls.count, f"{len(self._open)} open, {self._open_calls.count} counted"

    def _release(self, call: Call) -> Permit | None:
        name = self._open.pop(call, None)
        if name is not None:
            self._open_calls.close(name)
        return self._permits.pop(call, None)
