"""Deficit round robin for outputs of unknown length (VTC Appendix C.2). Unit of fairness: service per client.

Bound: 2 (U + Q) + Q for two continuously backlogged clients, U as for DLPM: visits alternate, each grants one quantum
at most, and a balance stays in (-U, Q]. Trade-off: as VTC, the order is by client and the cache suffers;
with a quantum below one token's cost it is VTC.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from local_worker.core.charging import Charging
from local_worker.core.policies.client_queues import ClientQueues
from local_worker.core.policies.protocol import QueuePolicyConfig, StepBudget
from local_worker.core.request import Request
from serving.bounded_client_map import BoundedClientMap
from serving.cost import MICRO, charge


@dataclass(slots=True)
class DrrAccount:
    """What is kept of a client."""

    balance: int = 0  # C_i
    requests: int = 0  # that wait or run


class Drr:
    """`balance` is the debt variable C_i: positive while the client may schedule.

    Clients that wait or owe are visited. A client is idle, and may be forgotten, when it has no requests and owes
    nothing: then only credit is lost.
    """

    balance_range_micro = None

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._config = config
        self._quantum = config.quantum_tokens * MICRO
        self._charging = Charging(config.cost)
        self._queues = ClientQueues()
        self._accounts: BoundedClientMap[str, DrrAccount] = BoundedClientMap(config.most_idle)
        self._visited: str | None = None  # whose visit memory interrupted: it goes on, but grants nothing again
        # Who is visited in turn, the next first: clients that wait, and others until their debt is paid.
        self._circle: dict[str, None] = {}

    @property
    def bound_micro(self) -> int:
        """See QueuePolicy."""
        return 2 * (self._config.most_per_balance + self._quantum) + self._quantum

    @property
    def waiting(self) -> int:
        """See QueuePolicy."""
        return len(self._queues)

    @property
    def remembered(self) -> int:
        """See QueuePolicy; here clients that owe are kept, too, until visits have paid their debts."""
        return len(self._accounts)

    def arrived(self, request: Request) -> None:
        """A client that joins is visited last."""
        self._config = self._config.seen(request.weight)
        client = request.client
        if client not in self._accounts:
            self._accounts[client] = DrrAccount()
        self._accounts.activate(client)
        self._accounts[client].requests += 1
        self._circle.setdefault(client)
        self._queues.add(request)

    def withdrawn(self, request: Request) -> None:
        """A client that neither waits nor owes any more is not visited."""
        client = request.client
        self._queues.remove(request)
        if client not in self._queues and self._accounts[client].balance >= 0:
            del self._circle[client]
            if self._visited == client:
                self._visited = None
        self._gone(client)

    def preempted(self, request: Request) -> None:
        """See QueuePolicy."""
        self._circle.setdefault(request.client)
        self._queues.restore(request)

    def victim(self, running: Sequence[Request]) -> Request:
        """Of the client that is deepest in debt."""
        return min(running, key=lambda request: (self.balance(request.client), -request.arrival))

    def cached(self, digests: Sequence[int]) -> None:
        """The order does not depend on the cache."""

    def select(self, budget: StepBudget) -> list[Request]:
        """Visits in turn until a request does not fit; that client's visit goes on at the next step."""
        admitted: list[Request] = []
        while len(self._queues):
            self._skip_empty_rounds()
            client = next(iter(self._circle))
            account = self._accounts[client]
            if client != self._visited and account.balance <= 0:
                account.balance += self._quantum
            self._visited = client
            while client in self._queues and account.balance > 0:
                request = self._queues.first(client)
                tokens = budget.admit(request)
                if tokens is None:
                    return admitted
                self._queues.remove(request)
                self._charge(request, self._charging.extend(request, tokens))
                self._reserve(request, budget)
                admitted.append(request)
            self._visited = None
            del self._circle[client]
            if client in self._queues or account.balance < 0:
                self._circle[client] = None
            else:
                self._rest(client)
        return admitted

    def _reserve(self, request: Request, budget: StepBudget) -> None:
        """Room beyond the client's share is paid for when it is taken."""
        if not self._config.strict_paper:
            ahead = budget.reserve(request)
            self._charge(request, self._charging.output(request, ahead.start, ahead.stop))

    def _skip_empty_rounds(self) -> None:
        """Rounds in which no waiting client becomes positive, all at once; the others are paid up to no debt."""
        rounds = min(-self.balance(client) // self._quantum for client in self._queues.clients)
        if rounds <= 0:
            return
        for client in list(self._circle):
            account = self._accounts[client]
            if client in self._queues:
                account.balance += rounds * self._quantum
                continue
            account.balance += max(0, min(rounds, -(account.balance // self._quantum))) * self._quantum
            if account.balance >= 0:
                del self._circle[client]
                self._rest(client)

    def generated(self, request: Request, tokens: int) -> None:
        """Output tokens as they come."""
        self._charge(request, self._charging.due(request, tokens))

    def _charge(self, request: Request, micro: int) -> None:
        account = self._accounts[request.client]
        account.balance -= charge(micro, request.weight)
        if account.balance < 0:
            self._circle.setdefault(request.client)

    def finished(self, request: Request) -> None:
        """Debts stay until visits have paid them."""
        self._gone(request.client)

    def _gone(self, client: str) -> None:
        """One of its requests neither waits nor runs any more."""
        self._accounts[client].requests -= 1
        self._rest(client)

    def _rest(self, client: str) -> None:
        if client not in self._circle and not self._accounts[client].requests:
            self._accounts.rest(client)

    def balance(self, client: str) -> int:
        """C_i in micro-units."""
        account = self._accounts.get(client)
        return 0 if account is None else account.balance

    def check_invariants(self) -> None:
        """No balance above a quantum; those that wait or owe are visited, and nobody else; those that do not are idle
        if they have no requests."""
        self._accounts.check_invariants()
        for client, account in self._accounts.items():
            balance = account.balance
            assert balance <= self._quantum, f"{client}: balance {balance} above the quantum {self._quantum}"
            visited = client in self._circle
            assert visited == (client in self._queues or balance < 0), f"{client}: balance {balance}, {visited=}"
            idle = not visited and not account.requests
            assert idle == self._accounts.is_idle(client), f"{client}: {account.requests} requests, {visited=}"
