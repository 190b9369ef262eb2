"""Fair queueing of tenants, and of the clients of each, for work of which a tenant may have one item under way.

Such work cannot be interrupted. A tenant whose items take long delays another one by those that are under way, and of
each tenant that is one.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from serving.core.fair_queue import FairQueue
from serving.names import tenant_of

T = TypeVar("T")


@dataclass(eq=False, frozen=True, slots=True)
class Ticket(Generic[T]):
    """An item with its client, `tenant` or `tenant/user`, and its cost in any unit, the same for all."""

    client: str
    cost: int
    item: T


class TenantQueue(Generic[T]):
    """Items that wait or are under way; among the first ones of all tenants a FairQueue chooses."""

    def __init__(self) -> None:
        self._next = FairQueue[Ticket[T]]()  # the first items, but for those under way
        self._first: dict[str, Ticket[T]] = {}  # by tenant
        self._behind: dict[str, FairQueue[Ticket[T]]] = {}

    def behind(self, client: str) -> int:
        """Return the number of items that wait behind the first one of the client's tenant."""
        return len(self._behind.get(tenant_of(client), ()))

    def put(self, ticket: Ticket[T]) -> None:
        """Add an item; raise ValueError unless its cost is positive."""
        tenant = tenant_of(ticket.client)
        self._behind.setdefault(tenant, FairQueue()).put(ticket.client, ticket.cost, ticket)
        if tenant not in self._first:
            self._follow(tenant)

    def take(self) -> Ticket[T] | None:
        """Return the next item, which is under way from now on; None if none waits, or only behind one under way."""
        return self._next.take() if self._next else None

    def done(self, ticket: Ticket[T]) -> None:
        """Remove an item that was under way; the next one of its tenant follows."""
        self._follow(tenant_of(ticket.client))

    def withdraw(self, ticket: Ticket[T]) -> None:
        """Remove a waiting item, for which its client is not charged."""
        tenant = tenant_of(ticket.client)
        if self._first[tenant] is ticket:
            self._next.withdraw(tenant, ticket)
            self._follow(tenant)
        else:
            self._behind[tenant].withdraw(ticket.client, ticket)

    def _follow(self, tenant: str) -> None:
        following = self._behind[tenant].take()
        if following is not None:
            self._first[tenant] = following
            self._next.put(tenant, following.cost, following)
            return
        del self._first[tenant], self._behind[tenant]
        if not self._first:
            self._next.take()  # forgets whose turn it was

    def check_invariants(self) -> None:
        """Raise AssertionError unless each tenant with items has a first one."""
        assert self._first.keys() == self._behind.keys(), f"{[*self._first]} are first, {[*self._behind]} wait"
        for queue in (self._next, *self._behind.values()):
            queue.check_invariants()
