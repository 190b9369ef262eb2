"""Least loaded: the shortest queue, whatever it holds. Unit of fairness: none."""

from global_scheduler.core.policies.base import Choice, PolicyConfig, Request
from global_scheduler.core.policies.stateless import WithoutAccounts


class LeastLoaded(WithoutAccounts):
    """`argmin s_w / capacity` over all candidates."""

    def __init__(self, _config: PolicyConfig) -> None:
        pass

    def select(self, request: Request, choice: Choice) -> int:
        """See Policy."""
        return choice.queues.least(choice.candidates)
