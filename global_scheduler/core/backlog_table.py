"""Outstanding work at each worker, of each client and of each tenant: what is booked there and has not ended."""

from collections.abc import Iterator, Mapping

from global_scheduler.core.fleet import slots
from serving.bounded_client_map import MOST_IDLE, BoundedClientMap
from serving.names import tenant_of


class RoutedBacklog:
    """Outstanding requests of one account at one worker: of a client, of a tenant, or all of the worker.

    How many they are and how many of them have a prompt that is not computed, their work in micro-units, the weight of
    the latest one, and the sum of the weights of those accounts directly below, clients or tenants, that have requests
    there. `above` is the backlog, at the same worker, of the client's tenant, or of all tenants; None for that of all.
    """

    __slots__ = ("above", "members", "prompts", "requests", "weight", "work")

    def __init__(self, above: "RoutedBacklog | None") -> None:
        self.above = above
        self.members = self.prompts = self.requests = self.weight = self.work = 0


class RoutedClient:
    """One client's backlogs by slot, the bitmask of these slots, and what it usually generates.

    `output` is a moving average over the client's requests, in 1 / SCALE tokens; None before its first request ended.
    """

    __slots__ = ("backlogs", "output", "workers")

    def __init__(self) -> None:
        self.backlogs: dict[int, RoutedBacklog] = {}
        self.workers = 0
        self.output: int | None = None


class BacklogTable:
    """The backlogs of all clients, tenants and workers. Booking and releasing take O(1)."""

    def __init__(self, most_idle: int = MOST_IDLE) -> None:
        self._clients: BoundedClientMap[str, RoutedClient] = BoundedClientMap(most_idle)
        self._tenants: dict[str, dict[int, RoutedBacklog]] = {}  # by slot; without empty ones
        self._workers: dict[int, RoutedBacklog] = {}

    def client(self, name: str) -> RoutedClient:
        """Return the client's record, new if the client is new or was idle longer than all that are remembered."""
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = RoutedClient()
            self._clients.rest(name)
        return client

    def tenant(self, client: str) -> Mapping[int, RoutedBacklog]:
        return self._tenants.get(tenant_of(client), {})

    def worker(self, slot: int) -> RoutedBacklog | None:
        """Return the backlog at `slot`; None when it has none."""
        return self._workers.get(slot)

    def book(self, name: str, slot: int, work: int, weight: int) -> None:
        """Add a request of `work` micro-units; client and tenant count at `slot` with `weight` from now on."""
        client = self.client(name)
        backlog: RoutedBacklog | None = client.backlogs.get(slot) or self._joined(name, client, slot)
        below = 0  # by how much the sum of the weights below grows
        while backlog is not None:
            backlog.requests += 1
            backlog.prompts += 1
            backlog.work += work
            backlog.members += below
            below = weight - backlog.weight
            backlog.weight = weight
            backlog = backlog.above

    def _joined(self, name: str, client: RoutedClient, slot: int) -> RoutedBacklog:
        """Return the client's new backlog at `slot`, where it has none."""
        client.workers |= 1 << slot
        self._clients.activate(name)
        above: RoutedBacklog | None = None
        for backlogs in (self._workers, self._tenants.setdefault(tenant_of(name), {}), client.backlogs):
            if slot not in backlogs:
                backlogs[slot] = RoutedBacklog(above)
            above = backlogs[slot]
        return client.backlogs[slot]

    def computed(self, name: str, slot: int, work: int) -> None:
        """Record that the prompt of a booked request is computed, whose work was `work`."""
        backlog: RoutedBacklog | None = self._clients[name].backlogs[slot]
        while backlog is not None:
            backlog.prompts -= 1
            backlog.work -= work
            backlog = backlog.above

    def release(self, name: str, slot: int, work: int) -> RoutedClient:
        """Remove a booked request, whose prompt is computed, and return its client's record."""
        client = self._clients[name]
        backlog: RoutedBacklog | None = client.backlogs[slot]
        below = 0
        while backlog is not None:
            backlog.requests -= 1
            backlog.work -= work
            backlog.members -= below
            below = 0 if backlog.requests else backlog.weight
            backlog = backlog.above
        if not client.backlogs[slot].requests:
            for backlogs in (client.backlogs, self._tenants[tenant_of(name)], self._workers):
                if not backlogs[slot].requests:
                    del backlogs[slot]
            self._left(name, client, slot)
        return client

    def forget(self, slot: int) -> None:
        """Drop all that is outstanding at `slot`. O(clients); workers leave rarely."""
        if self._workers.pop(slot, None) is None:
            return
        for name, client in list(self._clients.items()):
            if client.backlogs.pop(slot, None) is not None:
                self._tenants.get(tenant_of(name), {}).pop(slot, None)
                self._left(name, client, slot)

    def _left(self, name: str, client: RoutedClient, slot: int) -> None:
        """Record that the client has nothing at `slot` any more, and forget its tenant if that has nothing anywhere."""
        client.workers &= ~(1 << slot)
        if not client.workers:
            self._clients.rest(name)
        tenant = tenant_of(name)
        if tenant in self._tenants and not self._tenants[tenant]:
            del self._tenants[tenant]

    def outstanding(self) -> Iterator[tuple[str, int, RoutedBacklog]]:
        """Yield every client's backlog with the client and the slot."""
        for name, client in self._clients.items():
            for slot, backlog in client.backlogs.items():
                yield name, slot, backlog

    def check_invariants(self) -> None:
        self._clients.check_invariants()
        for name, client in self._clients.items():
            assert slots(client.workers) == sorted(client.backlogs), f"{name}: workers {client.workers:b}"
            assert self._clients.is_idle(name) == (not client.workers), f"{name} is idle, with {client.workers:b}"
        tenants: dict[tuple[str, int], list[RoutedBacklog]] = {}
        for name, slot, backlog in self.outstanding():
            assert backlog.requests > 0, f"{name} has nothing at {slot}"
            assert 0 <= backlog.prompts <= backlog.requests, f"{name} has {backlog.prompts} prompts at {slot}"
            assert backlog.work >= 0, f"{name} has {backlog.work} at {slot}"
            assert not backlog.members, f"{name} has {backlog.members} below it"
            tenant, worker = self.tenant(name).get(slot), self._workers.get(slot)
            assert backlog.above is tenant, f"{name} counts to another tenant at {slot}"
            assert tenant is None or tenant.above is worker, f"the tenant of {name} counts to another worker at {slot}"
            tenants.setdefault((tenant_of(name), slot), []).append(backlog)
        assert tenants.keys() == {(name, slot) for name, at in self._tenants.items() for slot in at}, "idle tenants"
        assert all(self._tenants.values()), "a tenant without outstanding requests"
        workers: dict[int, list[RoutedBacklog]] = {}
        for (name, slot), backlogs in tenants.items():
            assert _sums(backlogs) == _figures(self._tenants[name][slot]), f"{name} differs from its clients at {slot}"
            workers.setdefault(slot, []).append(self._tenants[name][slot])
        sums = {slot: _sums(backlogs) for slot, backlogs in workers.items()}
        figures = {slot: _figures(worker) for slot, worker in self._workers.items()}
        assert figures == sums, f"workers {figures}, their tenants {sums}"


def _figures(backlog: RoutedBacklog) -> tuple[int, int, int, int]:
    return backlog.requests, backlog.prompts, backlog.work, backlog.members


def _sums(backlogs: list[RoutedBacklog]) -> tuple[int, int, int, int]:
    requests, prompts, work, _ = map(sum, zip(*map(_figures, backlogs), strict=True))
    return requests, prompts, work, sum(backlog.weight for backlog in backlogs)
