"""Preble, as far as the DLPM paper describes it (section 6.1): exploit a long match, or else explore.

Unit of fairness: none.
"""

from global_scheduler.core.policies.base import Candidates, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.stateless import StatelessPolicy


class Preble(StatelessPolicy):
    """The least loaded of the workers with the longest match if this exceeds half of the prompt, or else of all
    workers.

    Rebalancing: a match whose queue, per capacity, is more than 1.5 times the shortest one with this request in it is
    skipped for the shortest.
    """

    def __init__(self, _config: RoutePolicyConfig) -> None:
        pass

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """Choose a worker; see RoutePolicy."""
        queues = choice.queues
        shortest = queues.least(choice.candidates)
        if 2 * choice.longest_tokens <= request.prompt_tokens:
            return shortest
        match = queues.least(choice.longest)
        return shortest if queues.outgrows(match, shortest) else match
