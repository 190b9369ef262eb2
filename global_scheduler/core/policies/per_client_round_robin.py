"""Round robin for each client by itself: the baseline beside VTC (DLPM section 6.1).

Unit of fairness: with a fair policy in the workers, service per client over the pool: a client that is backlogged is so
on every worker, and the workers' bounds add up (Theorem A.6).
"""

from dataclasses import dataclass

from global_scheduler.core.policies.base import Choice, PolicyConfig, Request
from global_scheduler.core.policies.by_client import ByClient
from global_scheduler.core.policies.round_robin import following
from global_scheduler.core.policies.stateless import WithoutAccounts


@dataclass(slots=True)
class Turn:
    """Where the client's last request went."""

    last: int | None = None


class PerClientRoundRobin(WithoutAccounts):
    """The next slot after the client's last one in this pool, cyclically."""

    def __init__(self, _config: PolicyConfig) -> None:
        self._turns: ByClient[Turn] = ByClient(Turn)

    def select(self, request: Request, choice: Choice) -> int:
        """See Policy."""
        turn = self._turns.of(request.client, request.model)
        turn.last = following(choice.candidates, turn.last)
        return turn.last

    def follow(self, request: Request, slot: int, candidates: int) -> None:
        """See Policy."""
        self._turns.of(request.client, request.model).last = slot
