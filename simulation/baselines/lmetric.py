"""LMetric (OSDI 2026): the least product of new prompt tokens and batch size.

Unit of fairness: none.
"""

from global_scheduler.core.outstanding_table import slots
from global_scheduler.core.policies.base import Candidates, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.stateless import StatelessPolicy


class Lmetric(StatelessPolicy):
    """Choose the least product of the request's new prompt tokens, which the worker does not cache, and the requests
    outstanding there.

    Of equal products the one with fewer new tokens is chosen, then the shortest queue. The policy has no parameter.
    """

    def __init__(self, _config: RoutePolicyConfig) -> None:
        pass

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """See RoutePolicy."""
        scores: dict[tuple[int, int], int] = {}  # workers by product and new tokens
        for slot in slots(choice.candidates):
            new = request.prompt_tokens - choice.tokens_at(slot)
            score = new * choice.queues.length(slot), new
            scores[score] = scores.get(score, 0) | 1 << slot
        return choice.queues.least(scores[min(scores)])
