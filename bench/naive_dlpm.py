"""DLPM on the simplest structures, as the reference: the whole queue is matched and sorted at every step."""

from collections.abc import Sequence

from local_worker.core.charging import Charging
from local_worker.core.policies import QueuePolicyConfig, StepBudget
from local_worker.core.request import Request
from serving.cost import MICRO, charge


class NaiveDlpm:
    """The part of QueuePolicy that the benchmark drives."""

    def __init__(self, config: QueuePolicyConfig) -> None:
        self._charging = Charging(config.cost)
        self._quantum = config.quantum_tokens * MICRO
        self._queue: dict[Request, None] = {}
        self._balances: dict[str, int] = {}

    def arrived(self, request: Request) -> None:
        """Lines 11-13."""
        self._balances.setdefault(request.client, 0)
        self._queue[request] = None

    def cached(self, digests: Sequence[int]) -> None:
        """Everything is matched anew anyway."""

    def select(self, budget: StepBudget) -> list[Request]:
        """Lines 16-25, one pass."""
        admitted = []
        for request in sorted(self._queue, key=lambda r: (not r.in_interaction, -budget.matched_tokens(r), r.arrival)):
            if self._balances[request.client] <= 0:
                self._refill()
            if self._balances[request.client] > 0 and (tokens := budget.admit(request)) is not None:
                self._charge(request, self._charging.extend(request, tokens))
                admitted.append(request)
        for request in admitted:
            del self._queue[request]
        return admitted

    def _refill(self) -> None:
        waiting = {request.client: None for request in self._queue}
        rounds = min(max(0, -self._balances[client] // self._quantum + 1) for client in waiting)
        for client, balance in self._balances.items():
            if rounds and balance <= 0:
                self._balances[client] += min(rounds, -balance // self._quantum + 1) * self._quantum

    def generated(self, request: Request, tokens: int) -> None:
        """Line 27."""
        self._charge(request, self._charging.decode(request, tokens))

    def finished(self, request: Request) -> None:
        """Nothing."""

    def _charge(self, request: Request, micro: int) -> None:
        self._balances[request.client] -= charge(micro, request.weight)
