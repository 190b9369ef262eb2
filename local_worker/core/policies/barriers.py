"""DLPM's barriers: a request that others have passed too often is passed by none until it enters.

A request that needs much room does not fit while smaller ones take what becomes free. Algorithm 1 lets it wait for
ever.
"""

from collections.abc import Sequence

from local_worker.core.accounts.account import Account
from local_worker.core.request import Request

# Number of admissions that may pass a request that does not fit and whose client has credit, before it is a barrier.
MAX_BYPASS = 32


class Barriers:
    """How often waiting requests were passed, and the barrier; there is at most one at a time."""

    def __init__(self) -> None:
        self.request: Request | None = None  # the barrier
        self._bypassed: dict[Request, int] = {}  # number of admissions that passed the request

    def passed(self, misfits: Sequence[Request]) -> Request | None:
        """Count that a request was admitted before `misfits`, and return the one that has become the barrier by it."""
        raised = None
        for request in misfits:
            self._bypassed[request] = self._bypassed.get(request, 0) + 1
            is_due = self._bypassed[request] >= MAX_BYPASS and self.request is None
            if is_due and all(map(_may_raise, request.account.lineage)):
                self.request = raised = request
                for account in request.account.lineage:
                    account.barrier_round = account.siblings.rounds
        return raised

    def left(self, request: Request) -> None:
        """Record that `request` waits no longer."""
        self._bypassed.pop(request, None)
        if self.request is request:
            self.request = None


def _may_raise(account: Account) -> bool:
    """Return whether an account has credit and had no barrier since its siblings' last round.

    Otherwise a client could drain the batch by submitting and cancelling requests.
    """
    return account.balance > 0 and account.barrier_round != account.siblings.rounds
