"""Requests that wait until an endpoint has room, in the order of VTC, by tenant and then by client.

Unit of fairness: service that requests were given, over their weights; first of tenants, and within a tenant of its
clients. So a tenant that names 20 users gets one share, which these share. Requests of the background class go after
those of all tenants, in the same order among themselves, with accounts of their own.
"""

from collections import deque
from collections.abc import Callable

from endpoint_picker.core.service_counters import ServiceCounters
from global_scheduler.core.policies import RouteRequest
from serving.core.vtc_order import VtcOrder
from serving.names import tenant_of

# Names of clients have no control characters. An account that is no client's ends in one. That of a level whose name
# ends in LATEST has the highest counter at which a request of the level was served: where none waits, an account that
# begins to wait is lifted to it.
LATEST = "\r"
BACKGROUND = "\v"  # begins the names of accounts of the background class


def background(client: str) -> str:
    """Return the name under which the background requests of `client` wait and are charged."""
    return BACKGROUND + client


def tenant_account(tenant: str) -> str:
    """Return the name of the account that all clients of a tenant have together."""
    return f"{tenant}\n"


class PickerQueue:
    """Keeps at most `most` waiting requests of each client; `counters` count what clients and tenants were given."""

    def __init__(self, most: int, counters: ServiceCounters) -> None:
        self._most = most
        self._counters = counters
        self._tenants = VtcOrder(counters.__getitem__)
        self._below = VtcOrder(counters.__getitem__)  # of tenants with background requests that wait
        self._begun = 0  # number of accounts that began to wait: of equal counters, the one that waits longest is first
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
            self._note_changed()
            tenant = tenant_account(tenant_of(client))
            if tenant not in self._clients:
                self._begin(*self._level(tenant), tenant)
                self._clients[tenant] = VtcOrder(self._counters.__getitem__)
            self._begin(self._clients[tenant], tenant + LATEST, client)
            queue = self._waiting[client] = deque()
        if len(queue) >= self._most:
            return False
        queue.append(request)
        return True

    def _level(self, tenant: str) -> tuple[VtcOrder, str]:
        """Return the order of the tenants of this one's class, and the account with the highest counter among them."""
        return (self._below, BACKGROUND + LATEST) if tenant.startswith(BACKGROUND) else (self._tenants, LATEST)

    def _begin(self, order: VtcOrder, latest: str, account: str) -> None:
        """Let `account` wait behind its equals: it earned no credit and got no debt while it had nothing waiting."""
        self._counters.lift(account, order.lifted(account, latest))
        order.put(account, self._begun)
        self._begun += 1

    def remove(self, request: RouteRequest) -> None:
        """Forget a request that waits no longer; ignored if it does not wait."""
        queue = self._waiting.get(request.client)
        if queue is not None and request in queue:
            queue.remove(request)
            self._settle(request.client)

    def next(self, fits: Callable[[RouteRequest], bool]) -> RouteRequest | None:
        """Take the first request that `fits`, of the tenant and its client with the least service, if there is one.

        A background request is taken only if no other one fits.
        O(log n), and as much again for each client whose first request does not fit.
        """

        def first_of(client: str) -> RouteRequest | None:
            return request if fits(request := self._waiting[client][0]) else None

        self._note_changed()
        request = None
        for order in (self._tenants, self._below):
            request = request or order.first_of(lambda tenant: self._clients[tenant].first_of(first_of))
        if request is not None:
            self.served(request.client)
            self._waiting[request.client].popleft()
            self._settle(request.client)
        return request

    def served(self, client: str) -> None:
        """Record that a request of `client` is served, whether it waited or not."""
        tenant = tenant_account(tenant_of(client))
        for account, latest, waits in (
            (tenant, self._level(tenant)[1], tenant in self._clients),
            (client, tenant + LATEST, client in self._waiting),
        ):
            if not waits:
                self._counters.lift(account, self._counters[latest])
                self._counters.rest(account)
            self._counters.lift(latest, self._counters[account])
            self._counters.rest(latest)

    def charge(self, client: str, micro: int) -> None:
        """Add service to a client's account and its tenant's, in micro-units over the weight; a refund is negative."""
        tenant = tenant_account(tenant_of(client))
        for account, waits in ((tenant, tenant in self._clients), (client, client in self._waiting)):
            self._counters.charge(account, micro)
            if not waits:
                self._counters.rest(account)

    def _note_changed(self) -> None:
        for account in self._counters.take_changed():
            is_tenant = account in self._clients
            order = self._level(account)[0] if is_tenant else self._clients[tenant_account(tenant_of(account))]
            order.changed(account)

    def _settle(self, client: str) -> None:
        if self._waiting[client]:
            return
        del self._waiting[client]
        tenant = tenant_account(tenant_of(client))
        self._clients[tenant].discard(client)
        self._counters.rest(client)
        if not self._clients[tenant]:
            del self._clients[tenant]
            self._level(tenant)[0].discard(tenant)
            self._counters.rest(tenant)

    def check_invariants(self) -> None:
        self._counters.check_invariants()
        self._note_changed()
        for client, queue in self._waiting.items():
            assert 0 < len(queue) <= self._most, f"{client}: {len(queue)} requests wait"
        waiting: dict[str, set[str]] = {}
        for client in self._waiting:
            waiting.setdefault(tenant_account(tenant_of(client)), set()).add(client)
        assert waiting.keys() == self._clients.keys(), f"{self._clients.keys()} wait, not {waiting.keys()}"
        below = {tenant for tenant in self._clients if tenant.startswith(BACKGROUND)}
        self._below.check_invariants(below)
        self._tenants.check_invariants(self._clients.keys() - below)
        for tenant, clients in self._clients.items():
            clients.check_invariants(waiting[tenant])
        active = set(self._counters.active)
        assert active == self._waiting.keys() | self._clients.keys(), f"{active} are remembered"
