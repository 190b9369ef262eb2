"""Round robin for each client by itself: the baseline beside VTC (DLPM section 6.1).

Unit of fairness: with a fair policy in the workers, service per client over the pool: a client that is backlogged is so
on every worker, and the workers' bounds add up (Theorem A.6).
"""

from global_scheduler.core.policies.base import Choice, PolicyConfig, Request
from global_scheduler.core.policies.round_robin import following
from global_scheduler.core.policies.stateless import WithoutAccounts
from serving.client_table import ClientTable


class PerClientRoundRobin(WithoutAccounts):
    """The next slot after the client's last one in this pool, cyclically."""

    def __init__(self, _config: PolicyConfig) -> None:
        self._last: ClientTable[tuple[str, str], int] = ClientTable()  # slot by client and model

    def select(self, request: Request, choice: Choice) -> int:
        """See Policy."""
        slot = following(choice.candidates, self._last.get((request.client, request.model)))
        self.follow(request, slot, choice.candidates)
        return slot

    def follow(self, request: Request, slot: int, candidates: int) -> None:
        """See Policy."""
        key = (request.client, request.model)
        self._last[key] = slot
        self._last.rest(key)
