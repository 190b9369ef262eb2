"""Least Counter First: VTC without the lift (VTC section 5.1). Unit of fairness: service received per client, ever.

Bound: none. A client that was away comes back with an old, low counter and takes the worker until it has caught up.
"""

from local_worker.core.policies.vtc import Vtc


class Lcf(Vtc):
    """See Vtc."""

    @property
    def bound_micro(self) -> None:
        """None is claimed."""

    def _joining(self, client: str) -> int:
        return self._counter(client)
