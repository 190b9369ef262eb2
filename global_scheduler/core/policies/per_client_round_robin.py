"""Round robin for each client by itself: the baseline beside VTC (DLPM section 6.1).

Unit of fairness: with a fair policy in the workers, service per client over the pool: a client that is backlogged is so
on every worker, and the workers' bounds add up (Theorem A.6).
"""

from global_scheduler.core.policies.base import Candidates, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.stateless import StatelessPolicy, following
from serving.bounded_client_map import BoundedClientMap


class PerClientRoundRobin(StatelessPolicy):
    """Choose the next slot after the client's last one in this pool, cyclically. See RoutePolicy."""

    def __init__(self, config: RoutePolicyConfig) -> None:
        self._last: BoundedClientMap[tuple[str, str], int] = BoundedClientMap(config.most_idle)  # by client and model

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        return following(choice.candidates, self._last.get((request.client, request.model)))

    def placed(self, request: RouteRequest, slot: int, candidates: int, matched_tokens: int) -> int:
        key = (request.client, request.model)
        self._last[key] = slot
        self._last.rest(key)
        return 0
