"""Virtual Token Counter (VTC Algorithm 2) over whole requests. Unit of fairness: service per client, over its weight.

Bound: the services of two continuously backlogged clients differ by at most 2 max(w_e L_input, w_q M) under reserve
admission (VTC Theorem 4.4). Input counts only as tokens that were not cached (DLPM section 3). Trade-off: the order is
by client, so the prefix cache is used less.
"""

from collections.abc import Sequence

from local_worker.core.accounts.service_ledger import Charging
from local_worker.core.accounts.tree import FLAT, AccountTree
from local_worker.core.policies.client_queues import ClientQueues
from local_worker.core.policies.protocol import QueuePolicyConfig, StepBudget
from local_worker.core.request import Request
from serving.core.vtc_order import VtcOrder
from serving.cost import charge


class Vtc:
    """VTC, where `balance` is the counter c_i: the client with the lowest is served first, ties by earliest request.

    The counter is the negative of the account's balance, which only charges change. So a client without an account
    joins with the highest counter that was ever forgotten, and is lifted as any other client. See QueuePolicy.
    """

    balance_range_micro = None  # counters grow without limit

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._config = config
        self._charging = Charging(config.cost)
        self.accounts = AccountTree(FLAT, config.most_idle)
        self._queues = ClientQueues()
        self._order = VtcOrder(self._counter)  # of equal counters, the one with the earliest request comes first
        self._orders = [self._order]  # and those of subclasses
        self._last_left = ""  # client whose queue became empty most recently

    @property
    def bound_micro(self) -> int | None:
        """The bound of Theorem 4.4 in micro-units; see QueuePolicy."""
        return 2 * max(self._config.most_extend, self._config.most_decode)

    @property
    def waiting(self) -> int:
        return len(self._queues)

    def arrived(self, request: Request) -> None:
        """Queue `request` as lines 6-13 do; see QueuePolicy."""
        self._config = self._config.seen(request.weight)
        client = request.client
        if client not in self._queues:
            request.account.charge(self._lifted_counter(client) - self._counter(client))
        self._queues.add(request)
        self._rank(client)

    def _lifted_counter(self, client: str) -> int:
        """Return the counter of a client that joins, lifted: time without demand earns no credit (lines 8-13)."""
        return self._order.lifted(client, self._last_left)

    def withdrawn(self, request: Request) -> None:
        self._dequeue(request)

    def _dequeue(self, request: Request) -> None:
        self._queues.remove(request)
        if request.client in self._queues:
            self._rank(request.client)
        else:
            self._last_left = request.client
            self._order.discard(request.client)

    def preempted(self, request: Request) -> None:
        """Queue `request` again without a lift, since its client has not been idle; see QueuePolicy."""
        self._queues.restore(request)
        self._rank(request.client)

    def victim(self, running: Sequence[Request]) -> Request:
        """Return a request of the client with the highest counter; see QueuePolicy."""
        return max(running, key=lambda request: (self._counter(request.client), request.arrival))

    def cached(self, digests: Sequence[int]) -> None:
        """Do nothing: the order does not depend on the cache."""

    def select(self, budget: StepBudget) -> list[Request]:
        """Admit the earliest request of the lowest counter until one does not fit (lines 17-24); see QueuePolicy."""
        admitted = []
        while (request := self._next()) is not None:
            tokens = budget.admit(request)
            if tokens is None:
                break
            self._enter(request, tokens, budget)
            admitted.append(request)
        return admitted

    def _enter(self, request: Request, tokens: int, budget: StepBudget) -> None:
        """Charge for an admission (lines 22 and 23), and for room beyond the client's share."""
        charged = charge(self._entry_cost(request, tokens), request.weight)
        if not self._config.strict_paper and (ahead := budget.reserve(request)):
            charged += charge(self._ahead_cost(request, ahead), request.weight)
        request.account.charge(charged)
        self._dequeue(request)

    def _next(self) -> Request | None:
        client = self._order.first()
        return None if client is None else self._queues.first(client)

    def _entry_cost(self, request: Request, tokens: int) -> int:
        return self._charging.extend(request, tokens)

    def _ahead_cost(self, request: Request, ahead: range) -> int:
        return self._charging.output(request, ahead.start, ahead.stop)

    def generated(self, request: Request, tokens: int) -> None:
        """Charge for output tokens as they are generated (line 27), the first included; see QueuePolicy."""
        self._charge(request, self._charging.due(request, tokens))

    def deferred(self, request: Request) -> None:
        self._charge(request, self._charging.next_output(request))

    def finished(self, request: Request) -> None:
        """Do nothing: counters of idle clients stay, since the lift compares with them."""

    def balance(self, client: str) -> int:
        """Return c_i in micro-units, also for a client without an account; see QueuePolicy."""
        return self._counter(client)

    def _counter(self, client: str) -> int:
        root = self.accounts.root
        account = root.members.get(client)
        return -(root.newcomers_balance if account is None else account.balance)

    def _charge(self, request: Request, micro: int) -> None:
        self._add(request, charge(micro, request.weight))

    def _add(self, request: Request, charged: int) -> None:
        """Add to the counter of the client of `request`; a refund is negative."""
        request.account.charge(charged)
        for order in self._orders:
            order.changed(request.client)

    def _rank(self, client: str) -> None:
        self._order.put(client, self._queues.first(client).arrival)

    def check_invariants(self) -> None:
        """Raise AssertionError unless the clients with waiting requests are in the order of their counters."""
        self._order.check_invariants(self._queues.clients)
