"""A queue policy for interactive requests and one for those of the background class, which get what the others leave.

The class stands above all levels of fairness. Within each class requests are ordered, charged and refilled by a policy
of their own, as if there were no other class, so that the bounds of the policy hold within a class. A background
request is admitted only while no interactive one waits.
"""

from collections.abc import Callable, Sequence

from local_worker.core.accounts.classes import ClassedAccounts
from local_worker.core.policies.protocol import QueuePolicy, QueuePolicyConfig, StepBudget
from local_worker.core.request import Request


class ClassedPolicy:
    """Two policies of one kind, `interactive` and `background`.

    What is asked of both is asked here, see QueuePolicy; the policy of its class is told of a request's events.
    """

    def __init__(self, make: Callable[[QueuePolicyConfig], QueuePolicy], config: QueuePolicyConfig) -> None:
        self.interactive = make(config)
        self.background = make(config)
        self.accounts = ClassedAccounts(self.interactive.accounts, self.background.accounts)

    @property
    def bound_micro(self) -> int | None:
        """The bound among interactive requests; see QueuePolicy."""
        return self.interactive.bound_micro

    @property
    def balance_range_micro(self) -> tuple[int, int] | None:
        """The range of balances of interactive requests; see QueuePolicy."""
        return self.interactive.balance_range_micro

    @property
    def waiting(self) -> int:
        """See QueuePolicy."""
        return self.interactive.waiting + self.background.waiting

    def victim(self, running: Sequence[Request]) -> Request:
        """Return a background request, if one runs; see QueuePolicy."""
        if lower := [request for request in running if request.background]:
            return self.background.victim(lower)
        return self.interactive.victim(running)

    def cached(self, digests: Sequence[int]) -> None:
        """See QueuePolicy."""
        self.interactive.cached(digests)
        self.background.cached(digests)

    def select(self, budget: StepBudget) -> list[Request]:
        """Admit interactive requests, and background ones if no interactive one is left; see QueuePolicy."""
        admitted = self.interactive.select(budget) if self.interactive.waiting else []
        if self.background.waiting and not self.interactive.waiting and not budget.closed:
            admitted += self.background.select(budget)
        return admitted

    def balance(self, client: str) -> int:
        """Return the account of the client's interactive requests; see QueuePolicy."""
        return self.interactive.balance(client)

    def check_invariants(self) -> None:
        """See QueuePolicy."""
        self.interactive.check_invariants()
        self.background.check_invariants()
