"""First come, first served. Unit of fairness: none; a flood from one client delays all others. Bound: none."""

from collections.abc import Sequence

from local_worker.core.accounts.tree import FLAT, AccountTree
from local_worker.core.policies.protocol import QueuePolicyConfig, StepBudget
from local_worker.core.request import Request


class Fcfs:
    """A queue in order of arrival; the first request that does not fit blocks all later ones. See QueuePolicy."""

    bound_micro = None
    balance_range_micro = None

    def __init__(self, config: QueuePolicyConfig) -> None:
        self.accounts = AccountTree(FLAT, config.most_idle)
        self._queue: dict[Request, None] = {}

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def arrived(self, request: Request) -> None:
        self._queue[request] = None

    def withdrawn(self, request: Request) -> None:
        del self._queue[request]

    def preempted(self, request: Request) -> None:
        """Put `request` back in order of arrival; see QueuePolicy."""
        self._queue[request] = None
        self._queue = dict.fromkeys(sorted(self._queue, key=lambda waiting: waiting.arrival))

    def victim(self, running: Sequence[Request]) -> Request:
        """Return the request that arrived last; see QueuePolicy."""
        return max(running, key=lambda request: request.arrival)

    def cached(self, digests: Sequence[int]) -> None:
        """Do nothing: the order does not depend on the cache."""

    def select(self, budget: StepBudget) -> list[Request]:
        admitted = []
        for request in self._queue:
            if budget.admit(request) is None:
                break
            admitted.append(request)
        for request in admitted:
            del self._queue[request]
        return admitted

    def generated(self, request: Request, tokens: int) -> None:
        """Do nothing: this policy does not charge."""

    def deferred(self, request: Request) -> None:
        """Do nothing: this policy does not charge."""

    def finished(self, request: Request) -> None:
        """Do nothing: this policy keeps no state of running requests."""

    def balance(self, client: str) -> int:
        """Return 0: this policy does not charge."""
        return 0

    def check_invariants(self) -> None:
        """Raise AssertionError unless the queue is in order of arrival."""
        arrivals = [request.arrival for request in self._queue]
        assert arrivals == sorted(arrivals), f"queue out of order: {arrivals}"
