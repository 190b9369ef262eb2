"""Least Counter First: VTC without the lift (VTC section 5.1). Unit of fairness: total service received per client.

Bound: none. A client that returns after a pause has a low counter, and takes the whole worker until it has caught up.
"""

from local_worker.core.policies.vtc import Vtc


class Lcf(Vtc):
    """The LCF policy: VTC whose counters are not lifted."""

    @property
    def bound_micro(self) -> None:
        """Always None, since this policy has no bound."""

    def _lifted_counter(self, client: str) -> int:
        return self._counter(client)
