"""Least loaded: the shortest queue, whatever it holds. Unit of fairness: none."""

from global_scheduler.core.policies.base import Candidates, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.stateless_policy import StatelessPolicy


class LeastLoaded(StatelessPolicy):
    """Choose `argmin s_w / capacity` over all candidates."""

    def __init__(self, _config: RoutePolicyConfig) -> None:
        pass

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """See RoutePolicy."""
        return choice.queues.least(choice.candidates)
