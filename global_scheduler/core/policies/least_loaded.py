"""Least loaded: the shortest queue, whatever it holds."""

from collections.abc import Sequence

from global_scheduler.core.fleet import Member
from global_scheduler.core.policies.base import PolicyConfig, Request, least_outstanding
from global_scheduler.core.policies.stateless import WithoutAccounts


class LeastLoaded(WithoutAccounts):
    """`argmin s_w` over all candidates."""

    def __init__(self, _config: PolicyConfig) -> None:
        pass

    def select(self, request: Request, candidates: Sequence[Member], longest: int) -> Member:
        """See Policy."""
        return least_outstanding(candidates)
