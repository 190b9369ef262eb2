"""Preble, as far as the DLPM paper describes it (section 6.1): exploit a long match, else explore. Unit of fairness:
none."""

from global_scheduler.core.policies.base import Candidates, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.stateless_policy import StatelessPolicy


class Preble(StatelessPolicy):
    """More than half of the prompt matched: the least loaded of those with the longest match; otherwise of all.

    Rebalancing: a match whose queue, per capacity, is more than 1.5 times the shortest one with this request in it is
    passed over for the shortest.
    """

    def __init__(self, _config: RoutePolicyConfig) -> None:
        pass

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """See Policy."""
        queues = choice.queues
        shortest = queues.least(choice.candidates)
        if 2 * choice.matched_tokens <= request.prompt_tokens:
            return shortest
        match = queues.least(choice.longest)
        return shortest if queues.outgrows(match, shortest) else match
