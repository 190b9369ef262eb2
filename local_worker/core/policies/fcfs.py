"""First come, first served. Unit of fairness: none; a flood of one client delays everybody. No bound."""

from collections.abc import Sequence

from local_worker.core.policies.protocol import QueuePolicyConfig, StepBudget
from local_worker.core.request import Request


class Fcfs:
    """The queue in order of arrival; the first that does not fit holds up the rest."""

    bound_micro = None
    balance_range_micro = None

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._queue: dict[Request, None] = {}

    @property
    def waiting(self) -> int:
        """See QueuePolicy."""
        return len(self._queue)

    @property
    def remembered(self) -> int:
        """There are no accounts."""
        return 0

    def arrived(self, request: Request) -> None:
        """See QueuePolicy."""
        self._queue[request] = None

    def withdrawn(self, request: Request) -> None:
        """See QueuePolicy."""
        del self._queue[request]

    def preempted(self, request: Request) -> None:
        """Back to its place in the order of arrival."""
        self._queue[request] = None
        self._queue = dict.fromkeys(sorted(self._queue, key=lambda waiting: waiting.arrival))

    def victim(self, running: Sequence[Request]) -> Request:
        """The last to have arrived."""
        return max(running, key=lambda request: request.arrival)

    def cached(self, digests: Sequence[int]) -> None:
        """The order does not depend on the cache."""

    def select(self, budget: StepBudget) -> list[Request]:
        """See QueuePolicy."""
        admitted = []
        for request in self._queue:
            if budget.admit(request) is None:
                break
            admitted.append(request)
        for request in admitted:
            del self._queue[request]
        return admitted

    def generated(self, request: Request, tokens: int) -> None:
        """Nothing is charged."""

    def finished(self, request: Request) -> None:
        """Nothing is kept."""

    def balance(self, client: str) -> int:
        """There are no accounts."""
        return 0

    def check_invariants(self) -> None:
        """The queue is in order of arrival."""
        arrivals = [request.arrival for request in self._queue]
        assert arrivals == sorted(arrivals), f"queue out of order: {arrivals}"
