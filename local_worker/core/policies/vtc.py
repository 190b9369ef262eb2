"""Virtual Token Counter (VTC Algorithm 2). Unit of fairness: service received per client, over its weight.

Bound: the services of two continuously backlogged clients differ by at most 2 max(w_e L_input, w_q M) under reserve
admission (VTC Theorem 4.4). Input counts only as tokens that were not cached (DLPM section 3). Trade-off: the order is
by client, so the prefix cache is used less.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from local_worker.core.charging import Charging
from local_worker.core.fairness_levels import FLAT
from local_worker.core.policies.client_priority_queue import ClientPriorityQueue
from local_worker.core.policies.client_queues import ClientQueues
from local_worker.core.policies.protocol import QueuePolicyConfig, StepBudget
from local_worker.core.request import Request
from serving.bounded_client_map import BoundedClientMap
from serving.cost import charge


@dataclass(slots=True)
class VtcAccount:
    """The account of one client at this policy."""

    counter: int  # c_i
    requests: int = 0  # number of waiting and running requests


class Vtc:
    """VTC, where `balance` is the counter c_i: the client with the lowest is served first, ties by earliest request.

    A client without an account joins with the highest counter that was ever forgotten, and is lifted as any other
    client. So no client gains by being forgotten.
    """

    balance_range_micro = None  # counters grow without limit

    levels = FLAT

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._config = config
        self._charging = Charging(config.cost)
        self._queues = ClientQueues()
        self._ranks = ClientPriorityQueue()  # waiting clients by (counter, earliest arrival)
        self._accounts: BoundedClientMap[str, VtcAccount] = BoundedClientMap(config.most_idle)
        self._highest_forgotten = 0
        self._last_left = ""  # client whose queue became empty most recently

    @property
    def bound_micro(self) -> int | None:
        """The bound of Theorem 4.4 in micro-units; see QueuePolicy."""
        return 2 * max(self._config.most_extend, self._config.most_decode)

    @property
    def waiting(self) -> int:
        """See QueuePolicy."""
        return len(self._queues)

    @property
    def remembered(self) -> int:
        """See QueuePolicy."""
        return len(self._accounts)

    def arrived(self, request: Request) -> None:
        """Queue `request` as lines 6-13 do; see QueuePolicy."""
        self._config = self._config.seen(request.weight)
        client = request.client
        if client not in self._accounts:
            self._accounts[client] = VtcAccount(self._highest_forgotten)
        self._accounts.activate(client)
        account = self._accounts[client]
        account.requests += 1
        if client not in self._queues:
            account.counter = self._lifted_counter(client)
        self._queues.add(request)
        self._rank(client)

    def _lifted_counter(self, client: str) -> int:
        """Return the counter of a client that joins, lifted: time without demand earns no credit (lines 8-13)."""
        least = self._ranks.least()
        return max(self._counter(client), self._counter(self._last_left if least is None else least))

    def withdrawn(self, request: Request) -> None:
        """See QueuePolicy."""
        self._dequeue(request)
        self._request_ended(request.client)

    def _dequeue(self, request: Request) -> None:
        self._queues.remove(request)
        if request.client in self._queues:
            self._rank(request.client)
        else:
            self._last_left = request.client
            self._ranks.discard(request.client)

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
        self._accounts[request.client].counter += charged
        self._dequeue(request)

    def _next(self) -> Request | None:
        client = self._ranks.least()
        return None if client is None else self._queues.first(client)

    def _entry_cost(self, request: Request, tokens: int) -> int:
        return self._charging.extend(request, tokens)

    def _ahead_cost(self, request: Request, ahead: range) -> int:
        return self._charging.output(request, ahead.start, ahead.stop)

    def generated(self, request: Request, tokens: int) -> None:
        """Charge for output tokens as they are generated (line 27), the first included; see QueuePolicy."""
        self._charge(request, self._charging.due(request, tokens))

    def deferred(self, request: Request) -> None:
        """See QueuePolicy."""
        self._charge(request, self._charging.next_output(request))

    def finished(self, request: Request) -> None:
        """Record that `request` has left the batch. Counters of idle clients stay: the lift compares with them."""
        self._request_ended(request.client)

    def _request_ended(self, client: str) -> None:
        """Record that one of the client's requests neither waits nor runs any more."""
        account = self._accounts[client]
        account.requests -= 1
        if not account.requests:
            forgotten = self._accounts.rest(client)
            if forgotten is not None:
                self._highest_forgotten = max(self._highest_forgotten, forgotten.counter)

    def balance(self, client: str) -> int:
        """Return c_i in micro-units, also for a client without an account; see QueuePolicy."""
        return self._counter(client)

    def _counter(self, client: str) -> int:
        account = self._accounts.get(client)
        return self._highest_forgotten if account is None else account.counter

    def _charge(self, request: Request, micro: int) -> None:
        self._add(request.client, charge(micro, request.weight))

    def _add(self, client: str, charged: int) -> None:
        self._accounts[client].counter += charged
        if client in self._queues:
            self._rank(client)

    def _rank(self, client: str) -> None:
        self._ranks.put(client, (self._counter(client), self._queues.first(client).arrival))

    def check_invariants(self) -> None:
        """Raise AssertionError unless the client ranked first has the lowest counter of the waiting clients."""
        waiting = self._queues.clients
        self._accounts.check_invariants()
        missing = [client for client in waiting if client not in self._accounts]
        assert not missing, f"clients without accounts: {missing}"
        least = self._ranks.least()
        assert (least is None) == (not waiting), f"{least} is ranked first of {list(waiting)}"
        if least is not None:
            lowest = min(self._counter(client) for client in waiting)
            assert self._counter(least) == lowest, f"{least} is ranked first, the least counter is {lowest}"
