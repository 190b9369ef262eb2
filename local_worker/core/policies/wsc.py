"""Weighted Service Counter (FairServe Algorithm 1, lines 11-18 and 26-48).

Unit of fairness: service per user, relative to the normal needs of each application. Bound: none. Requests that
continue an interaction in progress go first (lines 31-35), so a client with many of them is served as long as it has
any. For the same normalised service with a bound, use VTC, DRR or DLPM with the cost `normalized`.
"""

from dataclasses import replace

from local_worker.core.policies.client_queues import ClientQueues
from local_worker.core.policies.protocol import QueuePolicyConfig
from local_worker.core.policies.vtc import Vtc
from local_worker.core.request import Request
from serving.core.vtc_order import VtcOrder
from serving.cost import Normalized


class Wsc(Vtc):
    """The WSC policy: VTC's counters over a request's weight, which combines E_i and w_{a,j}; charged as tokens are
    processed. See QueuePolicy."""

    def __init__(self, config: QueuePolicyConfig) -> None:
        super().__init__(replace(config, cost=Normalized()))
        self._continuing = ClientQueues()
        self._continuing_order = VtcOrder(self._counter)
        self._orders.append(self._continuing_order)

    @property
    def bound_micro(self) -> None:
        """Always None, since this policy has no bound."""

    def arrived(self, request: Request) -> None:
        """Queue `request`, also among those that continue an interaction if it does; see QueuePolicy."""
        if request.in_interaction:
            self._continuing.add(request)
        super().arrived(request)

    def _dequeue(self, request: Request) -> None:
        if request.in_interaction:
            self._continuing.remove(request)
            if request.client not in self._continuing:
                self._continuing_order.discard(request.client)
        super()._dequeue(request)

    def preempted(self, request: Request) -> None:
        if request.in_interaction:
            self._continuing.restore(request)
        super().preempted(request)

    def _next(self) -> Request | None:
        client = self._continuing_order.first()
        return super()._next() if client is None else self._continuing.first(client)

    def _rank(self, client: str) -> None:
        super()._rank(client)
        if client in self._continuing:
            self._continuing_order.put(client, self._continuing.first(client).arrival)
