"""Tenants take turns at work of which each may have one item under way, and so do the users of each."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from local_worker.core.tenant_queue import TenantQueue, Ticket
from serving.names import tenant_of

CLIENTS = st.sampled_from(("ann", "bob/1", "bob/2", "eve/1", "eve/2"))


class TenantQueueMachine(RuleBasedStateMachine):
    """Puts, takes, ends and withdraws; a list of what waits is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = TenantQueue[int]()
        self.waiting: list[Ticket[int]] = []
        self.taken: list[Ticket[int]] = []
        self.number = 0

    @rule(client=CLIENTS, cost=st.integers(1, 5))
    def put(self, client: str, cost: int) -> None:
        self.number += 1
        ticket = Ticket(client, cost, self.number)
        self.queue.put(ticket)
        self.waiting.append(ticket)

    @rule()
    def take(self) -> None:
        busy = {tenant_of(ticket.client) for ticket in self.taken}
        free = {tenant_of(ticket.client) for ticket in self.waiting} - busy
        ticket = self.queue.take()
        assert (ticket is not None) == bool(free), "somebody is next if a tenant without work under way waits"
        if ticket is not None:
            assert tenant_of(ticket.client) in free
            assert ticket is next(each for each in self.waiting if each.client == ticket.client), "first in, first out"
            self.waiting.remove(ticket)
            self.taken.append(ticket)

    @precondition(lambda self: self.taken)
    @rule(number=st.integers(0, 10))
    def done(self, number: int) -> None:
        self.queue.done(self.taken.pop(number % len(self.taken)))

    @precondition(lambda self: self.waiting)
    @rule(number=st.integers(0, 20))
    def withdraw(self, number: int) -> None:
        self.queue.withdraw(self.waiting.pop(number % len(self.waiting)))

    @invariant()
    def sound(self) -> None:
        self.queue.check_invariants()
        for tenant in ("ann", "bob", "eve"):
            waiting = sum(tenant_of(ticket.client) == tenant for ticket in (*self.waiting, *self.taken))
            assert self.queue.behind(tenant) == max(0, waiting - 1)


TestTenantQueue = TenantQueueMachine.TestCase
TestTenantQueue.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)


def test_a_tenant_that_was_served_much_goes_after_one_that_was_served_little() -> None:
    queue = TenantQueue[str]()
    for client, cost in (("eve/1", 100), ("eve/2", 100), ("eve/1", 1), ("ann", 10), ("bob", 20)):
        queue.put(Ticket(client, cost, client))
    order = []
    while (ticket := queue.take()) is not None:
        order.append(ticket.item)
        queue.done(ticket)
    assert order == ["ann", "bob", "eve/1", "eve/2", "eve/1"]
