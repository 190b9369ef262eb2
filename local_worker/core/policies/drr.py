"""Deficit round robin for outputs of unknown length (VTC Appendix C.2). Unit of fairness: service per client.

Bound: the services of two continuously backlogged clients differ by at most 2 (U + Q) + Q, with U as for DLPM: visits
alternate, each grants at most one quantum, and a balance stays in (-U, Q]. Trade-off: as under VTC the order is by
client, so the prefix cache is used less. With a quantum below the cost of one token, DRR is VTC.
"""

from collections.abc import Sequence

from local_worker.core.accounts.service_ledger import Charging
from local_worker.core.accounts.tree import FLAT, AccountTree
from local_worker.core.policies.client_queues import ClientQueues
from local_worker.core.policies.protocol import QueuePolicyConfig, StepBudget
from local_worker.core.request import Request
from serving.cost import MICRO, charge


class Drr:
    """DRR, where `balance` is the debt variable C_i: a client's requests are admitted while it is positive.

    Clients with waiting requests or debt are visited. Of a forgotten client the credit is lost; the largest debt that
    was ever forgotten is that of all newcomers. See QueuePolicy.
    """

    balance_range_micro = None

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._config = config
        self._quantum = config.quantum_tokens * MICRO
        self._charging = Charging(config.cost)
        self.accounts = AccountTree(FLAT, config.most_idle)
        self._queues = ClientQueues()
        # Client whose visit ended because a request did not fit: the visit continues without another quantum.
        self._visited: str | None = None
        # Clients to visit, the next one first: those with waiting requests, and others until their debt is paid.
        self._active: dict[str, None] = {}

    @property
    def bound_micro(self) -> int:
        """The bound of the module's description in micro-units; see QueuePolicy."""
        return 2 * (self._config.most_per_balance + self._quantum) + self._quantum

    @property
    def waiting(self) -> int:
        return len(self._queues)

    def arrived(self, request: Request) -> None:
        """Queue `request`; a client that was not visited before is visited last. See QueuePolicy."""
        self._config = self._config.seen(request.weight)
        self._active.setdefault(request.client)
        self._queues.add(request)

    def withdrawn(self, request: Request) -> None:
        """Remove `request` from the queue; stop visiting a client that has neither waiting requests nor debt. See
        QueuePolicy."""
        client = request.client
        self._queues.remove(request)
        if client not in self._queues and request.account.balance >= 0:
            del self._active[client]
            if self._visited == client:
                self._visited = None

    def preempted(self, request: Request) -> None:
        self._active.setdefault(request.client)
        self._queues.restore(request)

    def victim(self, running: Sequence[Request]) -> Request:
        """Return a request of the client deepest in debt; see QueuePolicy."""
        return min(running, key=lambda request: (self.balance(request.client), -request.arrival))

    def cached(self, digests: Sequence[int]) -> None:
        """Do nothing: the order does not depend on the cache."""

    def select(self, budget: StepBudget) -> list[Request]:
        """Visit clients in turn until a request does not fit; the next step continues that client's visit. See
        QueuePolicy."""
        admitted: list[Request] = []
        while len(self._queues):
            self._skip_empty_rounds()
            client = next(iter(self._active))
            account = self.accounts.by_client.get(client)
            if account is None:  # forgotten with its debt
                del self._active[client]
                continue
            if client != self._visited and account.balance <= 0:
                account.charge(-self._quantum)
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
            del self._active[client]
            if client in self._queues or account.balance < 0:
                self._active[client] = None
        return admitted

    def _reserve(self, request: Request, budget: StepBudget) -> None:
        """Charge for room beyond the client's share when it is taken."""
        if not self._config.strict_paper and (ahead := budget.reserve(request)):
            self._charge(request, self._charging.output(request, ahead.start, ahead.stop))

    def _skip_empty_rounds(self) -> None:
        """Apply all rounds in which no waiting client becomes positive at once; other clients are refilled until their
        debt is paid."""
        waiting = self._queues.clients
        if any(self.balance(client) > -self._quantum for client in waiting):  # as a rule the first is
            return
        rounds = min(-self.balance(client) // self._quantum for client in waiting)
        for client in list(self._active):
            account = self.accounts.by_client.get(client)
            if account is None:
                del self._active[client]
            elif client in self._queues:
                account.charge(-rounds * self._quantum)
            elif account.charge(-min(rounds, -(account.balance // self._quantum)) * self._quantum) >= 0:
                del self._active[client]

    def generated(self, request: Request, tokens: int) -> None:
        """Charge for output tokens as they are generated; see QueuePolicy."""
        self._charge(request, self._charging.due(request, tokens))

    def deferred(self, request: Request) -> None:
        self._charge(request, self._charging.next_output(request))

    def _charge(self, request: Request, micro: int) -> None:
        if request.account.charge(charge(micro, request.weight)) < 0:
            self._active.setdefault(request.client)

    def finished(self, request: Request) -> None:
        """Do nothing: the client's debt stays until visits have paid it."""

    def balance(self, client: str) -> int:
        """Return C_i in micro-units; see QueuePolicy."""
        return self.accounts.balance((client,))

    def check_invariants(self) -> None:
        """Raise AssertionError unless balances are within the quantum and exactly the clients that wait or owe are
        visited."""
        for account in self.accounts:
            client, balance = account.name, account.balance
            assert balance <= self._quantum, f"{client}: balance {balance} above the quantum {self._quantum}"
            visited = client in self._active
            assert visited == (client in self._queues or balance < 0), f"{client}: balance {balance}, {visited=}"
