"""Least Counter First: VTC without the lift (VTC section 5.1). Unit of fairness: service received per client, ever.

Bound: none. A client that was away comes back with an old, low counter and takes the worker until it has caught up.
"""

from local_worker.core.policies.protocol import PolicyConfig
from local_worker.core.policies.vtc import Vtc


class Lcf(Vtc):
    """See Vtc."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        self.bound_micro = None

    def _joining(self, client: str) -> int:
        return self._counters.get(client, 0)
