"""Requests that wait until an endpoint has room, in the order of VTC (vtc_order.py), by tenant and then by client.

Unit of fairness: service that requests were given, over their weights; first of tenants, and within a tenant of its
clients. So a tenant that names 20 users gets one share, which these share.
"""

from collections import deque
from collections.abc import Callable

from endpoint_picker.core.service_counters import ServiceCounters
from endpoint_picker.core.vtc_order import VtcOrder
from global_scheduler.core.policies import RouteRequest
from serving.names import tenant_of

# Names of clients have no control characters. An account that is no client's ends in one.
LATEST = "\r"


def tenant_account(tenant: str) -> str:
    """Return the name of the account that all clients of a tenant have together."""
    return f"{tenant}\n"


class HeldRequests:
    """Keeps at most `most` waiting requests of each client; `counters` count what clients and tenants were given."""

    def __init__(self, most: int, counters: ServiceCounters) -> None:
        self._most = most
        self._counters = counters
        self._tenants = VtcOrder(counters, LATEST)
        self._clients: dict[str, VtcOrder] = {}  # by account of a tenant that waits
        self._waiting: dict[str, deque[RouteRequest]] = {}  # by client

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, request: RouteRequest) -> bool:
        """Let `request` wait behind the others of its client; return False if that has `most` already. O(log n)."""
        client = request.client
        queue = self._waiting.get(client)
        if queue is None:
            self._note_fallen()
            tenant = tenant_account(tenant_of(client))
            if tenant not in self._clients:
                self._tenants.add(tenant)
                self._clients[tenant] = self._clients_of(tenant)
            self._clients[tenant].add(client)
            queue = self._waiting[client] = deque()
        if len(queue) >= self._most:
            return False
        queue.append(request)
        return True

    def remove(self, request: RouteRequest) -> None:
        """Forget a request that waits no longer; ignored if it does not wait."""
        queue = self._waiting.get(request.client)
        if queue is not None and request in queue:
            queue.remove(request)
            self._settle(request.client)

    def next(self, fits: Callable[[RouteRequest], bool]) -> RouteRequest | None:
        """Take the first request that `fits`, of the tenant and its client with the least service, if there is one.

        O(log n), and as much again for each client whose first request does not fit.
        """

        def first_of(client: str) -> RouteRequest | None:
            return request if fits(request := self._waiting[client][0]) else None

        self._note_fallen()
        request = self._tenants.first(lambda tenant: self._clients[tenant].first(first_of))
        if request is not None:
            self.served(request.client)
            self._waiting[request.client].popleft()
            self._settle(request.client)
        return request

    def served(self, client: str) -> None:
        """Record that a request of `client` is served, whether it waited or not."""
        tenant = tenant_account(tenant_of(client))
        self._tenants.served(tenant)
        (self._clients.get(tenant) or self._clients_of(tenant)).served(client)

    def charge(self, client: str, micro: int) -> None:
        """Add service to a client's account and its tenant's, in micro-units over the weight; a refund is negative."""
        tenant = tenant_account(tenant_of(client))
        for account, waits in ((tenant, tenant in self._clients), (client, client in self._waiting)):
            self._counters.charge(account, micro)
            if not waits:
                self._counters.rest(account)

    def _clients_of(self, tenant: str) -> VtcOrder:
        return VtcOrder(self._counters, tenant + LATEST)

    def _note_fallen(self) -> None:
        for account in self._counters.fallen():
            order = self._tenants if account in self._clients else self._clients[tenant_account(tenant_of(account))]
            order.fell(account)

    def _settle(self, client: str) -> None:
        if self._waiting[client]:
            return
        del self._waiting[client]
        tenant = tenant_account(tenant_of(client))
        self._clients[tenant].remove(client)
        if not self._clients[tenant]:
            del self._clients[tenant]
            self._tenants.remove(tenant)

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""
        self._counters.check_invariants()
        self._note_fallen()
        for client, queue in self._waiting.items():
            assert 0 < len(queue) <= self._most, f"{client}: {len(queue)} requests wait"
        waiting: dict[str, set[str]] = {}
        for client in self._waiting:
            waiting.setdefault(tenant_account(tenant_of(client)), set()).add(client)
        assert waiting.keys() == self._clients.keys(), f"{self._clients.keys()} wait, not {waiting.keys()}"
        for tenant, clients in self._clients.items():
            assert tenant in self._tenants, f"{tenant!r} does not wait"
            assert all(client in clients for client in waiting[tenant]), f"not all clients of {tenant!r} wait"
        for order in (self._tenants, *self._clients.values()):
            order.check_invariants()
        active = set(self._counters.active)
        assert active == self._waiting.keys() | self._clients.keys(), f"{active} are remembered"
